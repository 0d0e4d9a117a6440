"""This worker's part of the slots of models that have a cap."""

from __future__ import annotations

from overnight.catalog.load import Load
from overnight.domain.grants import TURN_SECONDS, Share, beside_interactive, fair_share, slots_for_batches
from overnight.domain.limits import Limits
from overnight.monotonic import monotonic
from overnight.store import grants
from overnight.store.grants import Ask, Given
from overnight.store.life import Life
from overnight.store.pool import Session
from overnight.worker.flow import Flow
from overnight.worker.held import Held
from overnight.worker.yielding import kept_free, most_running, yielded_to

LOOK_EVERY = 1.0
"""Seconds between two looks at what others want of a model."""
HUNGRY_EVERY = 0.25
"""Seconds between two looks for slots that others gave back."""
TELL_EVERY = 0.05
"""Seconds at least between two statements that tell of other numbers of interactive requests."""
ROUNDS = 3
"""Statements in a row: to ask, to let go of what is over the share, and to see that it is right."""
NO_LIMIT = 1 << 31


class Grant:
    """What this worker may run of one model."""

    __slots__ = ("allowed", "ask_at", "granted", "interactive", "others", "seconds", "tell_at", "wanted")

    def __init__(self) -> None:
        self.allowed = 0
        """Requests start while fewer than this run."""
        self.granted = 0
        """Slots that nobody else takes; never fewer than run."""
        self.wanted = 0
        self.interactive = 0
        """Interactive requests that the others were told of."""
        self.tell_at = 0.0
        self.others: tuple[Share, ...] = ()
        self.seconds = 0
        self.ask_at = 0.0


class Grants:
    """Asks for slots of capped models, and gives them back; models without a cap cost nothing.

    A request starts by numbers that are here already; the database is asked about a model, not about a request.
    """

    def __init__(self, held: Held, limits: Limits, life: Life, load: Load) -> None:
        self._held = held
        self._load = load
        self._life = life
        self._limits = limits
        self._grants: dict[str, Grant] = {}
        self._cap: int | None = None
        self._takes_part = life.began_capped
        self._unused: set[str] = set()
        """Models whose slots are to be given back."""
        self._given_up: list[int] = []

    def begin_anew(self, old: int) -> None:
        """The calls of the life `old` were given up: its slots are free with the next round."""
        self._given_up.append(old)
        self._forget()

    def room(self, flow: Flow) -> int:
        """How many more requests of a flow's model may start here now."""
        if self._limits.per_model is None:
            return NO_LIMIT
        return self._allowed(flow.model) - self._held.running_of(flow.model)

    def is_changed(self) -> bool:
        """Whether others have not heard yet how many interactive requests of a capped model there are here."""
        if self._limits.per_model is None or not self._shares_load():
            return False
        return any(grant.interactive != self._interactive(model) for model, grant in self._grants.items())

    def is_waiting(self, model: str) -> bool:
        """Whether nothing of a model may start here, for want of a slot."""
        return self._limits.per_model is not None and not self._allowed(model)

    def is_used_up(self, model: str) -> bool:
        """Whether a cap leaves no slot of a model to anybody else."""
        if self._limits.per_model is None:
            return False
        grant = self._grants.get(model)
        if grant is None or self._cap is None:
            return True
        shares = (*grant.others, Share(self._held.worker, grant.granted, grant.wanted, grant.interactive))
        left = slots_for_batches(self._cap, kept_free(self._limits), shares)
        return sum(share.granted for share in shares) >= left

    async def round(self, session: Session) -> None:
        """Ask for what is wanted and give back what is not."""
        while self._given_up:
            await grants.release(session, self._given_up[0])
            del self._given_up[0]
        if self._limits.per_model is None:
            await self._leave(session)
            return
        wanted = self._wanted()
        for _ in range(ROUNDS):
            models = self._due(wanted, monotonic())
            if not models and self._takes_part:
                break
            await self._ask(session, models, wanted)
        await self._give_back(session, wanted)

    def _allowed(self, model: str) -> int:
        grant = self._grants.get(model)
        if grant is None or self._limits.per_model != self._cap:
            return 0
        return beside_interactive(grant.allowed, grant.interactive, self._interactive(model))

    def _interactive(self, model: str) -> int:
        return yielded_to(self._load, self._limits, model)

    def _shares_load(self) -> bool:
        return self._limits.shares_interactive_load

    def _told(self, model: str) -> int:
        """How many interactive requests to tell of."""
        return self._interactive(model) if self._shares_load() else 0

    def _forget(self) -> None:
        self._grants.clear()
        self._unused.clear()
        self._takes_part = self._life.began_capped

    async def _leave(self, session: Session) -> None:
        if self._takes_part:
            self._grants.clear()
            self._unused.clear()
            await grants.leave(session, self._held.worker)
            self._takes_part = False
        self._cap = None

    # -- what is wanted ----------------------------------------------------------------------------------------

    def _wanted(self) -> dict[str, int]:
        """How many requests of each model could run here at once, whoever else wants to; those that run included.

        Models of which there are interactive requests only are among them: others have to hear of these.
        """
        now = monotonic()
        wanted: dict[str, int] = {}
        for flow in self._held.flows.values():
            work = len(flow.reserve) + flow.untaken + self._wants_to_run_alone(flow, now)
            running = len(flow.running)
            most = most_running(flow.route, self._limits, now) if work and now >= flow.held_until else 0
            if most > 0:
                # What its route is busy with ends some time: then one slot of this model must be there.
                on_route = sum(len(sibling.running) for sibling in flow.siblings)
                most = max(1, most - on_route + running)
            if running or most:
                wanted[flow.model] = wanted.get(flow.model, 0) + max(running, min(running + work, most))
        for model in self._load.models:
            if self._told(model):
                wanted.setdefault(model, 0)
        return {model: min(number, self._limits.slots) for model, number in wanted.items()}

    def _wants_to_run_alone(self, flow: Flow, now: float) -> bool:
        """Whether a slot for one request more is asked for: others may use it while that is to wait."""
        held = self._held
        if not flow.waiting.lone:
            return False
        return flow.waiting.lone[0] is held.alone if held.alone else held.turns.is_due(now) or not held.running

    def _due(self, wanted: dict[str, int], now: float) -> list[str]:
        """The models of which something has to be asked or told now."""
        cap = self._limits.per_model
        if cap != self._cap:
            # Until it is known what the new cap leaves to whom, nothing starts.
            self._cap = cap
            for grant in self._grants.values():
                grant.allowed = grant.ask_at = 0
        return [model for model in wanted if self._is_due(model, wanted[model], now)]

    def _is_due(self, model: str, wanted: int, now: float) -> bool:
        grant = self._grants.get(model)
        if grant is None or now >= grant.ask_at:
            return True
        if grant.interactive != self._told(model) and now >= grant.tell_at:
            return True
        target = self._target(grant, wanted)
        # A share that shrank is let go of at once; one that grew is taken where some of it is free.
        grant.allowed = min(grant.allowed, target)
        if grant.granted > max(grant.allowed, self._held.running_of(model)):
            return True
        return target > grant.allowed and wanted > grant.wanted and grant.wanted <= grant.allowed

    def _target(self, grant: Grant, wanted: int) -> int:
        assert self._cap is not None
        mine = self._held.worker
        shares = (*grant.others, Share(mine, grant.granted, wanted, grant.interactive))
        slots = slots_for_batches(self._cap, kept_free(self._limits), shares)
        return fair_share(mine, shares, slots, grant.seconds // TURN_SECONDS)

    # -- asking ------------------------------------------------------------------------------------------------

    async def _ask(self, session: Session, models: list[str], wanted: dict[str, int]) -> None:
        worker = self._held.worker
        asks = [self._make_ask(model, wanted[model]) for model in models]
        given = await grants.share(session, worker, asks)
        self._held.check(worker)
        self._takes_part = True
        now = monotonic()
        for one in given:
            self._take(one, wanted[one.model], now)

    def _make_ask(self, model: str, wanted: int) -> Ask:
        grant = self._grants.setdefault(model, Grant())
        self._unused.discard(model)
        running = self._held.running_of(model)
        told = self._told(model)
        grant.allowed = beside_interactive(grant.allowed, grant.interactive, told)
        grant.interactive = told
        target = self._target(grant, wanted)
        grant.allowed = min(grant.allowed, target)
        assert self._cap is not None
        return Ask(
            model=model,
            running=running,
            holds=max(running, grant.allowed),
            wanted=wanted,
            target=target,
            allowed=grant.allowed,
            cap=max(0, self._cap - kept_free(self._limits)),
            interactive=told,
        )

    def _take(self, given: Given, wanted: int, now: float) -> None:
        grant = self._grants[given.model]
        grant.granted = given.granted
        grant.allowed = given.allowed
        grant.others = given.others
        grant.seconds = given.seconds
        grant.wanted = wanted
        grant.tell_at = now + TELL_EVERY
        grant.ask_at = now + (HUNGRY_EVERY if given.allowed < wanted else LOOK_EVERY)

    async def _give_back(self, session: Session, wanted: dict[str, int]) -> None:
        """Models of which nothing runs and nothing could."""
        for model in [m for m in self._grants if m not in wanted and not self._held.running_of(m)]:
            # Forgotten first: should this fail half-way, nothing starts by a grant that may be gone.
            del self._grants[model]
            self._unused.add(model)
        if self._unused:
            unused = sorted(self._unused)
            await grants.give_back(session, self._held.worker, unused)
            self._unused.difference_update(unused)
