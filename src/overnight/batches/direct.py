"""Requests in the create call itself: checked whole and planned before anything of them is stored."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import msgspec

from overnight.batches.check import BatchCheck, with_total
from overnight.batches.request import NewBatch
from overnight.catalog.find import is_known, lacks_of, resolve
from overnight.domain import lines
from overnight.domain.direct import URL, as_line, name_of, url_of
from overnight.domain.errors import RequestsRefused, TooManyRequests
from overnight.domain.limits import KIB, MOST_MODELS
from overnight.domain.lines import LineError, Problem, shown
from overnight.domain.plan import Block, Planner
from overnight.domain.prefix import Shape, group_of
from overnight.domain.targets import TARGETS
from overnight.files.shape import problem_as_json
from overnight.store import blocks, rolls
from overnight.store.served import Served

TURN_REQUESTS = 64
TURN_BYTES = 256 * KIB
"""After either, others get their turn: checking and planning so much takes about a millisecond."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A batch of direct requests that have no problem."""

    endpoint: str
    requests: int
    blocks: list[tuple[str, blocks.Packed]]
    """Each with its model."""
    roll: rolls.Writer
    model: str | None
    """The one model of all of them, where it is one and known."""
    unresolved: bool
    """No model was served, so that blocks have the names that requests use."""


async def prepare(new: NewBatch, most: int, longest: int, served: Sequence[Served]) -> Prepared:
    """Check every request and plan in which order they start.

    A batch may hold `most` requests, each of up to `longest` bytes as a line. Where no model is served, names of models
    are taken as they are, and looked up when there is one. Raises TooManyRequests, or RequestsRefused, which names the
    first request with a problem, says how many there are, and lists them.
    """
    assert new.requests is not None
    if len(new.requests) > most:
        says = f"The call holds {len(new.requests):,} requests; a batch may hold {most:,}."
        raise TooManyRequests(says, param="requests")
    endpoint = new.endpoint or url_of(bytes(new.requests[0]))
    if endpoint not in TARGETS:
        endpoint = URL  # the first request is refused for it when it is checked
    preparing = _Preparing(endpoint, longest, served, len(new.requests))
    since = 0
    for number, request in enumerate(new.requests):
        preparing.take(number, bytes(request))
        since += len(request)
        if number % TURN_REQUESTS == 0 or since > TURN_BYTES:
            since = 0
            await asyncio.sleep(0)
    preparing.refuse_if_wrong(new.requests)
    return Prepared(
        endpoint,
        len(new.requests),
        await preparing.finish(),
        preparing.roll,
        model=preparing.one_model if served else None,
        unresolved=not served,
    )


class _Preparing:
    def __init__(self, endpoint: str, longest: int, served: Sequence[Served], count: int) -> None:
        target = TARGETS[endpoint].name

        def find(name: str) -> str | None:
            return resolve(served, name, target) if served else name

        self._check = BatchCheck(
            endpoint,
            find,
            longest,
            many_models=True,
            lacks_of=partial(lacks_of, served),
            is_known=partial(is_known, served),
        )
        self.roll = rolls.Writer()
        self._seen: dict[str, int] = {}
        self._count = count
        self._planners: dict[str, Planner] = {}
        self._full: dict[str, list[blocks.Packed]] = {}

    @property
    def one_model(self) -> str | None:
        return next(iter(self._planners)) if len(self._planners) == 1 else None

    def take(self, number: int, request: bytes) -> None:
        """Check a request and, as long as none had a problem, plan it."""
        line = as_line(request)
        shape = self._checked(number, line)
        model = self._check.model
        if shape is None or model is None or self._check.problem_count:
            return
        planner = self._planners.get(model)
        if planner is None:
            if len(self._planners) >= MOST_MODELS:
                says = f"{shown(shape.custom_id)} names one model more than the {MOST_MODELS} that a batch may use."
                self._check.note(Problem("invalid_parameter", number, says, "body.model"))
                return
            planner = self._planners[model] = Planner()
            # However few of them are for this model: what matters is that the last blocks are small.
            planner.expect(self._count)
        self.roll.add(number, shape.custom_id)
        self._pack(model, planner.add(number, line, shape.custom_id, group_of(shape)))

    def refuse_if_wrong(self, requests: Sequence[msgspec.Raw]) -> None:
        """Raise RequestsRefused where a request has a problem."""
        count = self._check.problem_count
        if count == 0:
            return
        first = self._check.problems[0]
        assert first.line is not None
        place = f"requests[{first.line}]"
        name = name_of(bytes(requests[first.line]))
        says = f"{place}{'' if name is None else f' (custom_id {shown(name)})'}: {first.message}"
        if count > 1:
            says += f" {count - 1:,} more {'problem was' if count == 2 else 'problems were'} found."
        raise RequestsRefused(
            first.code,
            says,
            param=place if first.param is None else f"{place}.{first.param}",
            problems=[problem_as_json(problem) for problem in with_total(self._check.problems, count)],
        )

    async def finish(self) -> list[tuple[str, blocks.Packed]]:
        """Plan what is left and return all blocks, those of a model together."""
        for model, planner in self._planners.items():
            for block in planner.finish():
                self._pack(model, [block])
                await asyncio.sleep(0)
        return [(model, block) for model, full in self._full.items() for block in full]

    def _checked(self, number: int, line: bytes) -> Shape | None:
        check = self._check
        if len(line) > check.longest:
            return check.read(number, None)
        try:
            custom_id = lines.parse(line)["custom_id"]
        except LineError as e:
            check.note(Problem(e.code, number, e.message, e.param))
            return None
        before = self._seen.setdefault(custom_id, number)
        if before != number:
            says = f"custom_id {shown(custom_id)} was used before, by requests[{before}]."
            check.note(Problem("duplicate_custom_id", number, says, "custom_id"))
            return None
        return check.read(number, line)

    def _pack(self, model: str, full: Iterable[Block]) -> None:
        for block in full:
            self._full.setdefault(model, []).append(blocks.pack(block))
