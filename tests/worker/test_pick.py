"""Whose request starts next."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from overnight.worker.pick import turns


@dataclass(frozen=True)
class Backlog:
    owner: int
    untaken: int
    in_flight: int = 0
    last_turn: int = 0


def test_a_single_batch_has_every_turn() -> None:
    assert turns([Backlog(1, 3)], 10) == [0, 0, 0]
    assert turns([Backlog(1, 30)], 2) == [0, 0]


def test_nothing_waits_nothing_starts() -> None:
    assert turns([], 5) == []
    assert turns([Backlog(1, 0), Backlog(2, 0)], 5) == []


def test_owners_take_turns_request_by_request() -> None:
    assert turns([Backlog(1, 100), Backlog(2, 100)], 6) == [0, 1, 0, 1, 0, 1]


def test_a_second_batch_gives_its_owner_no_second_share() -> None:
    chosen = Counter(turns([Backlog(1, 100), Backlog(1, 100), Backlog(2, 100)], 40))
    assert chosen == {0: 10, 1: 10, 2: 20}


def test_who_has_the_fewest_in_flight_comes_first() -> None:
    assert turns([Backlog(1, 100, in_flight=3), Backlog(2, 100)], 4) == [1, 1, 1, 0]


def test_what_runs_of_a_batch_without_more_counts_for_its_owner() -> None:
    assert turns([Backlog(1, 0, in_flight=5), Backlog(1, 100), Backlog(2, 100)], 3) == [2, 2, 2]


def test_a_small_batch_is_not_behind_a_large_one() -> None:
    large = Backlog(1, 50_000, in_flight=64)
    assert turns([large, Backlog(2, 1)], 3) == [1, 0, 0]


def test_one_turn_at_a_time_comes_round() -> None:
    """With a reserve of one request the last turn alone decides, and nobody has two in a row."""
    last = [0, 0, 0]
    order = []
    for turn in range(1, 7):
        (index,) = turns([Backlog(owner, 10, last_turn=last[owner]) for owner in range(3)], 1)
        last[index] = turn
        order.append(index)
    assert order == [0, 1, 2, 0, 1, 2]


backlogs = st.builds(
    Backlog,
    owner=st.integers(1, 4),
    untaken=st.integers(0, 8),
    in_flight=st.integers(0, 8),
    last_turn=st.integers(0, 9),
)


@given(st.lists(backlogs, max_size=8), st.integers(0, 40))
def test_all_turns_are_used_and_none_too_many(standings: list[Backlog], most: int) -> None:
    chosen = turns(standings, most)
    assert len(chosen) == min(most, sum(batch.untaken for batch in standings))
    assert all(count <= standings[index].untaken for index, count in Counter(chosen).items())


@given(st.lists(backlogs, max_size=8), st.integers(0, 40))
def test_no_owner_gets_ahead_of_one_that_still_waits(standings: list[Backlog], most: int) -> None:
    chosen = Counter(turns(standings, most))
    owners = {batch.owner for batch in standings}
    of = {o: [i for i, batch in enumerate(standings) if batch.owner == o] for o in owners}
    total = {o: sum(standings[i].in_flight + chosen[i] for i in of[o]) for o in owners}
    for waiting in owners:
        if any(standings[i].untaken > chosen[i] for i in of[waiting]):
            served = [o for o in owners if any(chosen[i] for i in of[o])]
            assert all(total[o] <= total[waiting] + 1 for o in served)
