"""The law by which workers share a model's slots: never over the cap, and nobody waits for ever."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from overnight.domain.grants import Share, beside_interactive, fair_share, left_to_batches, settle, slots_for_batches


def shares_of(*wants: int) -> list[Share]:
    return [Share(no, 0, wanted) for no, wanted in enumerate(wants, start=1)]


@pytest.mark.parametrize(
    ("slots", "wants", "expected"),
    [
        (10, (100,), [10]),
        (10, (4,), [4]),
        (10, (100, 100), [5, 5]),
        (10, (2, 100), [2, 8]),
        (10, (100, 3, 0), [7, 3, 0]),
        (8, (100, 100, 100), [2, 3, 3]),
        (12, (5, 5, 1), [5, 5, 1]),
        (0, (5, 5), [0, 0]),
    ],
)
def test_each_gets_what_it_wants_up_to_one_level(slots: int, wants: tuple[int, ...], expected: list[int]) -> None:
    shares = shares_of(*wants)
    assert [fair_share(share.worker, shares, slots, turn=0) for share in shares] == expected


def test_backlogs_that_change_move_no_slot() -> None:
    assert [fair_share(no, shares_of(99, 55, 70), 8, 0) for no in (1, 2, 3)] == [2, 3, 3]
    assert [fair_share(no, shares_of(50, 98, 60), 8, 0) for no in (1, 2, 3)] == [2, 3, 3]


def test_too_few_slots_go_round() -> None:
    shares = shares_of(100, 1, 30, 0)
    turns = [[fair_share(share.worker, shares, 1, turn) for share in shares] for turn in range(3)]
    assert sorted(turns) == [[0, 0, 1, 0], [0, 1, 0, 0], [1, 0, 0, 0]]


def test_the_slots_of_the_frozen_are_nobodys() -> None:
    shares = [*shares_of(100, 100), Share(3, 4, 100, lingers=True)]
    assert [fair_share(no, shares, 10, 0) for no in (1, 2, 3)] == [3, 3, 0]


def test_people_and_the_reserve_take_their_slots_one_by_one() -> None:
    shares = [Share(1, 0, 9, interactive=2), Share(2, 0, 9, interactive=1)]
    assert slots_for_batches(10, 0, shares) == 7
    assert slots_for_batches(10, 2, shares) == 5
    assert slots_for_batches(3, 2, shares) == 0


@given(st.integers(0, 50), st.integers(0, 50), st.integers(0, 50), st.integers(0, 50))
def test_batches_leave_a_server_what_interactive_requests_and_the_reserve_take(
    most: int, slots: int, interactive: int, reserve: int
) -> None:
    left = left_to_batches(most, slots, interactive, reserve)
    assert 0 <= left <= most
    assert not left or left + interactive <= most
    assert not left or left + interactive + reserve <= slots
    assert left_to_batches(most, slots, interactive + 1, reserve) == max(0, left - 1)


@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 9), st.booleans()), min_size=1, max_size=7),
    st.integers(0, 60),
    st.integers(0, 1_000),
)
def test_shares_use_up_the_slots_where_they_are_wanted_and_no_more(
    workers: list[tuple[int, int, bool]], slots: int, turn: int
) -> None:
    shares = [Share(no, granted, wanted, 0, lingers) for no, (wanted, granted, lingers) in enumerate(workers)]
    fair = [fair_share(share.worker, shares, slots, turn) for share in shares]
    left = max(0, slots - sum(share.granted for share in shares if share.lingers))
    wanted = sum(share.wanted for share in shares if not share.lingers)
    assert sum(fair) == min(left, wanted)
    assert all(mine <= share.wanted for mine, share in zip(fair, shares, strict=True))


@given(st.integers(0, 50), st.integers(0, 50), st.integers(-20, 50))
def test_what_runs_keeps_its_grant_and_nothing_starts_that_is_not_free(holds: int, target: int, free: int) -> None:
    allowed, granted = settle(holds, target, free)
    assert granted >= max(holds, allowed)
    assert allowed <= max(0, free)
    assert granted == holds or granted <= free


@dataclass
class Model:
    """A worker as the rule sees it, and what it really runs."""

    no: int
    backlog: int = 0
    running: int = 0
    allowed: int = 0
    granted: int = 0
    others: tuple[Share, ...] = ()
    """What it last heard, however long ago."""
    told: int = 0
    interactive: int = 0
    told_interactive: int = 0
    lingers: bool = False
    turn: int = 0

    @property
    def wanted(self) -> int:
        return self.running + self.backlog


class Sharing(RuleBasedStateMachine):
    """Workers that join, run, ask with old views, freeze, die and come back, in any order."""

    @initialize(cap=st.integers(0, 12))
    def begin(self, cap: int) -> None:
        self.cap = cap
        self.clock = 0
        self.next_no = 1
        self.workers: dict[int, Model] = {}

    def shares(self, but: int) -> tuple[Share, ...]:
        return tuple(
            Share(w.no, w.granted, w.told, w.told_interactive, w.lingers) for w in self.workers.values() if w.no != but
        )

    def target(self, worker: Model) -> int:
        view = (*worker.others, Share(worker.no, worker.granted, worker.wanted, worker.told_interactive))
        return fair_share(worker.no, view, slots_for_batches(self.cap, 0, view), worker.turn)

    def ask(self, worker: Model) -> None:
        """One statement: the target comes from the old view, what is free from the locked row."""
        worker.allowed = beside_interactive(worker.allowed, worker.told_interactive, worker.interactive)
        worker.told_interactive = worker.interactive
        target = self.target(worker)
        worker.allowed = min(worker.allowed, target)
        holds = max(worker.running, worker.allowed)
        before = self.granted()
        taken = sum(w.granted + w.told_interactive for w in self.workers.values() if w.no != worker.no)
        free = self.cap - worker.interactive - taken
        worker.allowed, worker.granted = settle(holds, target, free)
        assert self.granted() <= max(self.cap, before)
        worker.told = worker.wanted
        worker.others, worker.turn = self.shares(worker.no), self.clock
        worker.allowed = min(worker.allowed, self.target(worker))

    def granted(self) -> int:
        return sum(w.granted for w in self.workers.values())

    def living(self) -> list[Model]:
        return [w for w in self.workers.values() if not w.lingers]

    def one(self, pick: int) -> Model:
        living = self.living()
        return living[pick % len(living)]

    @rule(backlog=st.integers(0, 30))
    def join(self, backlog: int) -> None:
        if len(self.workers) < 6:
            self.workers[self.next_no] = Model(self.next_no, backlog)
            self.next_no += 1

    @precondition(lambda self: self.living())
    @rule(pick=st.integers(0, 5), more=st.integers(1, 20))
    def get_work(self, pick: int, more: int) -> None:
        self.one(pick).backlog += more

    @precondition(lambda self: self.living())
    @rule(pick=st.integers(0, 5))
    def ask_for_slots(self, pick: int) -> None:
        self.ask(self.one(pick))

    @precondition(lambda self: self.living())
    @rule(pick=st.integers(0, 5), most=st.integers(1, 12))
    def start(self, pick: int, most: int) -> None:
        worker = self.one(pick)
        may_run = beside_interactive(worker.allowed, worker.told_interactive, worker.interactive)
        starts = max(0, min(most, worker.backlog, may_run - worker.running))
        before = self.running()
        worker.backlog -= starts
        worker.running += starts
        # A lowered cap lets nothing start before so many have ended.
        assert not starts or before + starts <= self.cap
        # Nor beside interactive requests of the same process, whether others have heard of them or not.
        assert not starts or worker.running + worker.interactive <= self.cap

    @precondition(lambda self: self.living())
    @rule(pick=st.integers(0, 5), count=st.integers(0, 14))
    def ask_interactively(self, pick: int, count: int) -> None:
        """Interactive requests come and go, and nobody keeps them back."""
        self.one(pick).interactive = count

    @precondition(lambda self: self.living())
    @rule(pick=st.integers(0, 5), most=st.integers(1, 12))
    def finish(self, pick: int, most: int) -> None:
        worker = self.one(pick)
        worker.running -= min(most, worker.running)

    @precondition(lambda self: self.living())
    @rule(pick=st.integers(0, 5))
    def leave(self, pick: int) -> None:
        """It ended, or was killed: its calls ended with it."""
        del self.workers[self.one(pick).no]

    @precondition(lambda self: self.living())
    @rule(pick=st.integers(0, 5))
    def freeze_and_be_declared_dead(self, pick: int) -> None:
        worker = self.one(pick)
        worker.lingers = True
        worker.told = 0

    @precondition(lambda self: any(w.lingers for w in self.workers.values()))
    @rule(pick=st.integers(0, 5))
    def come_back(self, pick: int) -> None:
        """It gives its calls up, then its slots, and begins anew."""
        frozen = [w for w in self.workers.values() if w.lingers]
        old = frozen[pick % len(frozen)]
        old.running = 0
        del self.workers[old.no]
        self.workers[self.next_no] = Model(self.next_no, old.backlog)
        self.next_no += 1

    @rule(cap=st.integers(0, 12))
    def change_cap(self, cap: int) -> None:
        """What the new cap leaves is asked for before anything starts."""
        self.cap = cap
        for worker in self.living():
            worker.allowed = 0

    @rule()
    def time_passes(self) -> None:
        self.clock += 1

    def running(self) -> int:
        return sum(w.running for w in self.workers.values())

    @invariant()
    def no_one_runs_more_than_it_was_granted(self) -> None:
        assert all(max(w.running, w.allowed) <= w.granted for w in self.workers.values())

    def teardown(self) -> None:
        """However it stands: after some looks the cap is used, and everybody had its turn."""
        living = self.living() if hasattr(self, "workers") else []
        if not living:
            return
        frozen = sum(w.granted + w.told_interactive for w in self.workers.values() if w.lingers)
        free = max(0, self.cap - frozen - sum(w.interactive for w in living))
        if not free:
            return
        had_a_turn = set()
        for _ in range(2 * len(living) + 2):
            self.clock += 1
            for worker in living * 3:
                worker.backlog = 40
                worker.running = min(worker.running, worker.allowed)
                self.ask(worker)
                worker.running = worker.allowed
                if worker.running:
                    had_a_turn.add(worker.no)
        assert sum(w.running for w in living) == free
        assert had_a_turn == {w.no for w in living}


TestSharing = Sharing.TestCase
TestSharing.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
