"""Whose request starts next."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from math import inf

from hypothesis import given
from hypothesis import strategies as st

from overnight.domain.fairness import AGING, Shares
from overnight.worker.pick import Turns


@dataclass
class Backlog:
    owner: int
    untaken: int
    latest_start: float = inf
    cost: int = 10
    last_turn: int = -1


def take(shares: Shares, backlogs: list[Backlog], most: int) -> list[int]:
    """Take up to so many requests; the indexes of their batches."""
    shares.see({b.owner for b in backlogs if b.untaken})
    turns = Turns(shares, backlogs)
    order: list[int] = []
    while len(order) < most:
        batch = turns.next()
        if batch is None:
            break
        batch.untaken -= 1
        turns.charge(batch.cost)
        order.append(next(i for i, one in enumerate(backlogs) if one is batch))
    return order


def test_a_single_batch_has_every_turn() -> None:
    assert take(Shares(), [Backlog(1, 3)], 10) == [0, 0, 0]
    assert take(Shares(), [Backlog(1, 30)], 2) == [0, 0]


def test_nothing_waits_nothing_starts() -> None:
    assert take(Shares(), [], 5) == []
    assert take(Shares(), [Backlog(1, 0), Backlog(2, 0)], 5) == []


def test_owners_take_turns_request_by_request() -> None:
    assert take(Shares(), [Backlog(1, 100), Backlog(2, 100)], 6) == [0, 1, 0, 1, 0, 1]


def test_a_thousand_batches_give_their_owner_no_second_share() -> None:
    chosen = take(Shares(), [Backlog(1, 1_000), *(Backlog(2, 1) for _ in range(1_000))], 400)
    assert chosen.count(0) == 200


def test_requests_of_ten_times_the_cost_have_a_tenth_of_the_turns() -> None:
    chosen = take(Shares(), [Backlog(1, 1_000, cost=100), Backlog(2, 1_000, cost=10)], 220)
    assert chosen.count(0) == 20


def test_what_an_owner_was_charged_before_counts() -> None:
    shares = Shares()
    backlogs = [Backlog(1, 100), Backlog(2, 100)]
    take(shares, backlogs, 2)
    shares.charge(1, 30)
    assert take(shares, backlogs, 4) == [1, 1, 1, 0]


def test_a_small_batch_is_not_behind_a_large_one_of_another_owner() -> None:
    shares = Shares()
    large = Backlog(1, 50_000)
    take(shares, [large], 1_000)
    assert take(shares, [large, Backlog(2, 1)], 3) == [0, 1, 0]


def test_one_turn_at_a_time_comes_round() -> None:
    """With a reserve of one request, and a look for each, nobody has two in a row."""
    shares = Shares()
    backlogs = [Backlog(owner, 10) for owner in range(3)]
    assert [take(shares, backlogs, 1) for _ in range(6)] == [[0], [1], [2], [0], [1], [2]]


def test_of_one_owner_the_batch_with_the_least_slack_is_next() -> None:
    chosen = take(Shares(), [Backlog(1, 100, 30.0), Backlog(1, 3, 10.0), Backlog(1, 2, 20.0)], AGING - 1)
    assert chosen == [1, 1, 1, 2, 2, 0, 0]


def test_every_batch_of_an_owner_has_a_turn_however_much_slack_it_has() -> None:
    chosen = take(Shares(), [Backlog(1, 10_000, float(slack)) for slack in range(50)], AGING * 50)
    assert set(chosen) == set(range(50))
    assert chosen.count(0) > AGING * 50 * 3 / 4


def test_a_small_batch_behind_a_large_one_of_its_owner_starts_at_once() -> None:
    shares = Shares()
    large = Backlog(1, 50_000, 10.0)
    take(shares, [large], 1_000)
    assert 1 in take(shares, [large, Backlog(1, 1, 20.0)], AGING)


def test_aging_is_counted_by_owner() -> None:
    """Two owners who alternate would else meet the turn of aging always or never."""
    backlogs = [Backlog(owner, 1_000, float(slack)) for owner in (1, 2) for slack in (1, 2)]
    chosen = Counter(take(Shares(), backlogs, 2 * 10 * AGING))
    assert chosen == {0: 10 * AGING - 10, 1: 10, 2: 10 * AGING - 10, 3: 10}


backlogs = st.builds(
    Backlog,
    owner=st.integers(1, 4),
    untaken=st.integers(0, 8),
    latest_start=st.floats(0, 9),
    cost=st.integers(1, 50),
)


@given(st.lists(backlogs, max_size=8), st.integers(0, 40))
def test_all_turns_are_used_and_none_too_many(standings: list[Backlog], most: int) -> None:
    before = [batch.untaken for batch in standings]
    chosen = take(Shares(), standings, most)
    assert len(chosen) == min(most, sum(before))
    assert all(batch.untaken >= 0 for batch in standings)


@given(
    st.lists(st.lists(backlogs, max_size=12), max_size=6),
    st.lists(st.integers(0, 12), max_size=12),
)
def test_no_owner_gets_ahead_of_one_that_waits_by_more_than_a_request(
    arrivals: list[list[Backlog]], looks: list[int]
) -> None:
    """Where charges are right, over any number of batches that come meanwhile."""
    shares = Shares()
    held: list[Backlog] = []
    for number, most in enumerate(looks):
        held += arrivals[number] if number < len(arrivals) else []
        take(shares, held, most)
        waiting = {batch.owner for batch in held if batch.untaken}
        shares.see(waiting)
        counters = [shares.account(owner).served for owner in waiting]
        assert not counters or max(counters) - min(counters) <= 50
