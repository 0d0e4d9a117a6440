"""The sizes that keep slots full without hoarding."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from overnight.domain.limits import BLOCK_LINES
from overnight.worker import room
from overnight.worker.room import (
    MOST_BLOCKS,
    Rate,
    blocks_to_lease,
    lines_to_lease,
    lines_to_write,
    reserve_low,
    smooth,
)

rates = st.floats(0, 50_000)
commits = st.floats(0.0005, 10)
counts = st.integers(0, 20_000)
caps = st.integers(1, 20_000)


def test_a_slow_engine_has_a_handful_written_down() -> None:
    for slots in (1, 2, 4, 8):
        assert 1 <= reserve_low(slots, rate=1.0, commit=0.005) <= 5


def test_each_lane_has_two_that_fit_it_written_down() -> None:
    for slots in (1, 4, 16):
        assert reserve_low(slots, rate=1.0, commit=0.005, lanes=slots) >= 2 * slots
        assert lines_to_write(slots, slots, 2 * slots - 1, rate=1.0, commit=0.005, lanes=slots) >= 1
    assert reserve_low(2, rate=0, commit=0.005, lanes=16) == 4


def test_the_reserve_lasts_for_longer_than_a_commit_takes() -> None:
    assert reserve_low(64, rate=20_000, commit=0.02) >= 400


def test_an_accident_of_the_database_makes_no_endless_reserve() -> None:
    assert reserve_low(64, rate=20_000, commit=600) < 10_000


def test_free_slots_are_filled_at_once() -> None:
    assert lines_to_write(cap=100, running=0, written=0, rate=0, commit=0.005) >= 100
    assert lines_to_lease(cap=100, in_flight=0, untaken=0, rate=0, reserve=4) >= 104


@given(caps, counts, counts, rates, commits)
def test_what_is_written_down_is_enough_and_no_more(
    cap: int, running: int, written: int, rate: float, commit: float
) -> None:
    lines = lines_to_write(cap, running, written, rate, commit)
    enough = max(0, cap - running) + reserve_low(cap, rate, commit)
    if written >= enough:
        assert lines == 0
    else:
        assert written + lines >= enough
        assert written + lines <= enough + rate * room.LEAST_APART + 1


@given(caps, counts, counts, rates)
def test_leasing_stops_when_there_is_enough(cap: int, in_flight: int, untaken: int, rate: float) -> None:
    lines = lines_to_lease(cap, in_flight, untaken, rate, reserve=10)
    assert lines >= 0
    if lines:
        assert lines_to_lease(cap, in_flight, untaken + lines, rate, reserve=10) == 0


def test_blocks_are_counted_by_those_leased_before() -> None:
    assert blocks_to_lease(1_000, BLOCK_LINES, 300_000, 1e9) == 4
    assert blocks_to_lease(100, 2, 2_000, 1e9) == 50
    assert blocks_to_lease(1, 256, 300_000, 1e9) == 1


def test_blocks_fit_into_what_memory_is_left() -> None:
    assert blocks_to_lease(10_000, 256, 1e6, 3.5e6) == 3
    assert blocks_to_lease(10_000, 256, 1e6, 0) == 0
    assert blocks_to_lease(10_000, 256, 1e6, -5e6) == 0
    assert blocks_to_lease(10_000_000, 1, 100, 1e12) == MOST_BLOCKS


def test_the_rate_rises_at_once_and_falls_slowly() -> None:
    rate = Rate(0.0)
    rate.add(1_000, 0.05)
    assert rate.value == 0
    rate.add(1_000, 0.2)
    assert rate.value == 10_000
    rate.add(0, 0.4)
    assert 8_000 < rate.value < 10_000
    rate.add(0, 60)
    assert rate.value < 1


def test_a_duration_rises_at_once_and_falls_slowly() -> None:
    assert smooth(0.01, 0.2) == 0.2
    assert 0.15 < smooth(0.2, 0.01) < 0.2
