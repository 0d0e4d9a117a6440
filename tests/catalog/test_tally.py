"""What is counted on a route."""

from __future__ import annotations

from datetime import timedelta

from overnight.catalog.tally import Tally
from overnight.domain.concurrency.state import Signals
from overnight.domain.outcome import NO_USAGE, Try, Usage

BUSY = Signals(3, 1)


def begun() -> Tally:
    return Tally(100.0)


def test_a_period_tells_what_was_in_flight_on_average_and_at_the_most() -> None:
    tally = begun()
    tally.begin(100.0)
    tally.begin(101.0)
    tally.end(102.0)
    seen = tally.take(104.0, BUSY)
    assert (seen.seconds, seen.peak, seen.left, seen.signals) == (4.0, 2, 1, BUSY)
    assert seen.in_flight == (2 + 3) / 4


def test_what_runs_on_counts_in_the_next_period() -> None:
    tally = begun()
    tally.begin(100.0)
    tally.take(101.0, None)
    seen = tally.take(103.0, None)
    assert (seen.in_flight, seen.peak) == (1.0, 1)


def test_answers_are_counted_by_their_tokens() -> None:
    tally = begun()
    tally.answer(2.0, Usage(input=10, output=5))
    tally.answer(1.0, Usage(input=1, output=1))
    seen = tally.take(101.0, None)
    assert (seen.ended, seen.work, seen.taken) == (2, 17.0, 3.0)


def test_answers_without_usage_are_counted_by_themselves() -> None:
    tally = begun()
    tally.answer(2.0, NO_USAGE)
    assert tally.take(101.0, None).work == 1.0


def test_of_refusals_the_longest_wait_asked_for_is_told_once() -> None:
    tally = begun()
    for wait in (0.0, 7.0, 3.0):
        tally.refuse(wait)
    seen = tally.take(101.0, None)
    assert (seen.refused, seen.retry_after) == (3, 7.0)
    assert tally.take(102.0, None).refused == 0


def test_only_what_says_that_the_server_is_full_or_gone_is_a_refusal() -> None:
    tally = begun()
    tally.fail(Try(status=429, code="rate_limited", retry_after=timedelta(seconds=7)))
    tally.fail(Try(status=None, code="service_unavailable", gone=True))
    tally.fail(Try(status=500, code="upstream_error"))
    seen = tally.take(101.0, None)
    assert (seen.refused, seen.lost, seen.retry_after) == (2, 1, 7.0)
    assert tally.take(102.0, None).lost == 0


def test_what_was_set_aside_is_counted_by_itself_until_it_ends() -> None:
    tally = begun()
    tally.begin(101.0, 3)
    tally.set_aside(3, 102.0)
    tally.begin(102.0)
    tally.end(103.0, 102.0)
    tally.end(103.0, 101.0)
    assert (tally.aside, tally.running) == (2, 2)
