"""The laws of who is served next, without a worker."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from math import inf
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overnight.domain.fairness import (
    ExpectedOutput,
    Shares,
    cost,
    estimate,
    latest_start,
    will_close_first,
)


@dataclass
class Queue:
    """Requests of some owners and how they stand, chosen as the law says. A request is (charged, its true cost)."""

    shares: Shares = field(default_factory=Shares)
    waiting: dict[int, list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list))
    running: list[tuple[int, int, int]] = field(default_factory=list)
    charged: dict[int, float] = field(default_factory=lambda: defaultdict(float))
    ended: dict[int, float] = field(default_factory=lambda: defaultdict(float))

    @property
    def backlogged(self) -> list[int]:
        return [owner for owner, requests in self.waiting.items() if requests]

    def counter(self, owner: int) -> float:
        return self.shares.account(owner).served

    def start(self) -> int:
        self.shares.see(set(self.backlogged))
        owner = min(self.backlogged, key=lambda o: (self.counter(o), o))
        charged, costs = self.waiting[owner].pop()
        self.shares.charge(owner, charged)
        self.charged[owner] += charged
        self.running.append((owner, charged, costs))
        return owner

    def end(self, index: int) -> None:
        owner, charged, costs = self.running.pop(index % len(self.running))
        self.shares.charge(owner, costs - charged)
        self.charged[owner] += costs - charged
        self.ended[owner] += costs


MOST = 50
SLOTS = 4
requests = st.tuples(st.integers(1, MOST), st.integers(1, MOST))
steps = st.one_of(
    st.tuples(st.just("come"), st.integers(1, 4), st.lists(requests, min_size=1, max_size=6)),
    st.tuples(st.just("leave"), st.integers(1, 4), st.none()),
    st.tuples(st.just("start"), st.none(), st.none()),
    st.tuples(st.just("end"), st.integers(0, SLOTS), st.none()),
)
COUNTERS_APART = MOST + 2 * SLOTS * (MOST - 1)
"""The stated bound, where a request is charged MOST at the most and off by MOST - 1."""


@given(st.lists(steps, max_size=60))
def test_counters_of_owners_that_wait_never_drift_apart_by_more_than_the_bound(taken: list[Any]) -> None:
    """Random sizes, wrong estimates, arrivals and departures. Also what they were served while both waited."""
    queue = Queue()
    since: dict[tuple[int, int], tuple[float, float]] = {}
    for kind, number, given_requests in taken:
        if kind == "come":
            queue.waiting[number] += given_requests
        elif kind == "leave":
            queue.waiting[number].clear()
        elif kind == "end" and queue.running:
            queue.end(number)
        elif kind == "start" and queue.backlogged and len(queue.running) < SLOTS:
            queue.start()
        queue.shares.see(set(queue.backlogged))
        pairs = [(a, b) for a in queue.backlogged for b in queue.backlogged if a != b]
        since = {pair: since.get(pair, gaps(queue, pair)) for pair in pairs}
        for pair, (charged, ended) in since.items():
            assert abs(queue.counter(pair[0]) - queue.counter(pair[1])) <= COUNTERS_APART
            now_charged, now_ended = gaps(queue, pair)
            assert abs(now_charged - charged) <= 2 * COUNTERS_APART
            assert abs(now_ended - ended) <= 2 * (COUNTERS_APART + SLOTS * MOST)


def gaps(queue: Queue, pair: tuple[int, int]) -> tuple[float, float]:
    a, b = pair
    return queue.charged[a] - queue.charged[b], queue.ended[a] - queue.ended[b]


@given(st.lists(requests, min_size=25, max_size=25), st.integers(1, SLOTS))
def test_tokens_are_shared_however_long_the_requests_are(sizes: list[tuple[int, int]], slots: int) -> None:
    """One owner's requests are ten times longer than the other's, and nobody knows before."""
    queue = Queue()
    queue.waiting[1] = list(sizes)
    queue.waiting[2] = [(charged, 10 * costs) for charged, costs in sizes]
    while len(queue.backlogged) == 2:
        queue.start()
        if len(queue.running) == slots:
            queue.end(0)
    most, off = max(c for c, _ in sizes), max(abs(c - k * t) for c, t in sizes for k in (1, 10))
    assert abs(queue.charged[1] - queue.charged[2]) <= most + 2 * slots * off


def test_absence_saves_up_nothing() -> None:
    queue = Queue()
    queue.waiting[1] = [(1, 1)]
    queue.waiting[2] = [(10, 10)] * 100
    queue.start()
    for _ in range(50):
        queue.start()
    queue.waiting[1] = [(10, 10)] * 100
    order = [queue.start() for _ in range(20)]
    assert abs(order.count(1) - order.count(2)) <= 1


def test_who_comes_first_to_an_empty_queue_is_no_better_off_than_who_left_it() -> None:
    queue = Queue()
    queue.waiting[1] = [(10, 10)] * 5
    for _ in range(5):
        queue.start()
    queue.shares.see(set())
    queue.waiting[2] = [(10, 10)] * 5
    queue.waiting[1] = [(10, 10)] * 5
    order = [queue.start() for _ in range(6)]
    assert order.count(1) == order.count(2) == 3


def test_a_newcomer_is_next_but_one_at_the_latest() -> None:
    queue = Queue()
    queue.waiting[1] = [(10, 10)] * 50_000
    for _ in range(1_000):
        queue.start()
    queue.waiting[2] = [(7, 7)]
    assert 2 in [queue.start(), queue.start()]


def test_an_owner_of_twice_the_weight_is_served_twice_as_much() -> None:
    queue = Queue(Shares({1: 2.0}))
    queue.waiting[1] = [(10, 10)] * 100
    queue.waiting[2] = [(10, 10)] * 100
    for _ in range(90):
        queue.start()
    assert queue.charged[1] == pytest.approx(2 * queue.charged[2], abs=20)


def test_owners_that_are_gone_are_forgotten() -> None:
    shares = Shares()
    for owner in range(10_000):
        shares.see({owner})
        shares.charge(owner, 5)
    assert len(shares._accounts) <= 1_100
    # What a request of one of them turns out to have cost is of no account any more.
    shares.charge(0, 100)
    shares.see({0, 9_999})
    assert abs(shares.account(0).served - shares.account(9_999).served) <= 5


def test_written_tokens_weigh_twice_and_nothing_is_for_nothing() -> None:
    assert cost(100, 10) == 120
    assert cost(0, 0) == 1
    assert estimate(400, 10) == 120
    assert estimate(0, 1) == 2


def test_the_expected_output_is_learnt() -> None:
    expected = ExpectedOutput()
    assert expected.tokens == 1
    for _ in range(10):
        expected.learn(100)
    assert expected.tokens == 100
    for _ in range(1_000):
        expected.learn(10)
    assert 10 <= expected.tokens <= 11
    assert ExpectedOutput(expected).tokens == expected.tokens


def test_it_is_never_less_than_one_token() -> None:
    expected = ExpectedOutput()
    for _ in range(100):
        expected.learn(0)
    assert expected.tokens == 1


def test_the_slower_of_two_batches_must_start_first() -> None:
    quick = latest_start(1_000.0, left=10, answered=10, seconds=10.0)
    slow = latest_start(1_000.0, left=100, answered=10, seconds=10.0)
    assert (quick, slow) == (990.0, 900.0)
    assert latest_start(1_000.0, left=100, answered=0, seconds=10.0) == 1_000.0
    assert latest_start(1_000.0, left=0, answered=9, seconds=10.0) == 1_000.0


@pytest.mark.parametrize(
    ("closes", "left", "answered", "seconds", "said"),
    [
        (1_100.0, 100, 100, 100.0, False),
        (1_100.0, 101, 100, 100.0, True),
        (1_100.0, 0, 100, 100.0, False),
        (inf, 1_000, 1, 100.0, False),
        (1_097.0, 1_000, 1, 3.0, False),
        (1_090.0, 1_000, 1, 10.0, True),
        (1_100.0, 10, 0, 50.0, False),
        (1_100.0, 10, 0, 100.0, True),
    ],
)
def test_a_window_that_will_close_first_is_seen(
    closes: float, left: int, answered: int, seconds: float, said: bool
) -> None:
    assert will_close_first(closes - 1_000.0, left, answered, seconds) is said
