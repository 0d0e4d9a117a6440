"""The rule on simulated servers: the simulation is deterministic, and the margins are wide."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from benchmarks.room import ErrorsOnly, Fixed, Ours, Run, simulate
from benchmarks.simulated_servers import CountLimited, MemoryLimited, Moody, QueueLimited, RateLimited, Server

SECONDS = 240.0
SERVERS: dict[str, tuple[Callable[[], Server], int]] = {
    "queue": (QueueLimited, 32),
    "queue, told": (lambda: QueueLimited(tells=True), 32),
    "memory": (MemoryLimited, 96),
    "memory, told": (lambda: MemoryLimited(tells=True), 96),
    "rate": (RateLimited, 64),
    "count": (CountLimited, 100),
}
"""Each with the fixed number that is best on it."""


@pytest.fixture(scope="module")
def runs() -> dict[str, tuple[Run, Run, Ours]]:
    """On each server: the best fixed number, and the rule."""
    found = {}
    for name, (make, best) in SERVERS.items():
        ours = Ours()
        found[name] = simulate(make(), Fixed(best), SECONDS), simulate(make(), ours, SECONDS), ours
    return found


@pytest.mark.parametrize("name", SERVERS)
def test_the_rule_comes_within_a_tenth_of_the_best_fixed_number(
    runs: dict[str, tuple[Run, Run, Ours]], name: str
) -> None:
    best, ours, _ = runs[name]
    assert ours.pace() >= 0.9 * best.pace()


@pytest.mark.parametrize("name", SERVERS)
def test_few_requests_are_refused(runs: dict[str, tuple[Run, Run, Ours]], name: str) -> None:
    assert runs[name][1].errors() <= 20


def test_where_the_server_tells_no_more_requests_wait_than_keep_it_busy(
    runs: dict[str, tuple[Run, Run, Ours]],
) -> None:
    assert max(runs["queue, told"][2].numbers[-200:]) <= 30
    assert max(runs["memory, told"][2].numbers[-200:]) <= 130


def test_a_silent_server_is_not_given_all_there_is(runs: dict[str, tuple[Run, Run, Ours]]) -> None:
    assert max(runs["queue"][2].numbers[-200:]) <= 130
    assert max(runs["memory"][2].numbers[-200:]) <= 300


def test_the_number_of_an_operator_is_never_exceeded() -> None:
    ours = Ours(20)
    simulate(QueueLimited(), ours, 60.0)
    assert max(ours.numbers) == 20


def test_counting_errors_alone_goes_on_growing_where_there_are_none() -> None:
    rival = ErrorsOnly()
    simulate(QueueLimited(), rival, 120.0)
    assert rival.allowed(0) > 400


@pytest.mark.parametrize("part", [0.005, 0.01, 0.025])
def test_a_few_refusals_by_chance_cost_next_to_nothing(part: float) -> None:
    for seed in range(1, 7):
        best = simulate(Moody(24, part, seed), Fixed(32), SECONDS)
        ours = simulate(Moody(24, part, seed), Ours(), SECONDS)
        assert ours.pace() >= 0.93 * best.pace()


@pytest.mark.parametrize("part", [0.025, 0.05, 0.1])
@pytest.mark.parametrize("slots", [None, 12])
def test_refusals_by_chance_do_not_starve_a_server(slots: int | None, part: float) -> None:
    best = simulate(Moody(24, part), Fixed(slots or 32), SECONDS)
    ours = simulate(Moody(24, part), Ours(slots), SECONDS)
    assert ours.pace() >= 0.85 * best.pace()


def test_refusals_of_a_server_that_became_smaller_are_not_taken_for_chance() -> None:
    class Shrinking(CountLimited):
        def start(self, now: float) -> bool:
            self._most = 100 if now < SECONDS / 2 else 30
            return super().start(now)

    run = simulate(Shrinking(), ours := Ours(), SECONDS)
    assert run.errors() <= 25
    assert max(ours.numbers[-200:]) <= 60
