"""How many requests a route is given at once."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from overnight.domain.concurrency.rule import FASTEST, IDLE, LONGEST_PAUSE, follow, is_refusal
from overnight.domain.concurrency.state import MOST, START, SURE, Bounds, Phase, Room, Seen, Signals, Why
from overnight.domain.outcome import Try

PERIOD = 0.25
UNKNOWN = Bounds.of(None)


def full(room: Room, **seen: object) -> Seen:
    """A period in which the number was in flight all the time."""
    plain = Seen(PERIOD, float(room.allowed), room.allowed, left=room.allowed)
    return replace(plain, **seen)  # type: ignore[arg-type]


def held_at(number: float, bounds: Bounds = UNKNOWN) -> Room:
    return replace(Room.begin(bounds), number=number, trusted=number, phase=Phase.HOLD, holds=1e9)


def steps(room: Room, count: int) -> list[int]:
    """The numbers of a ramp on a server from which nothing has come back yet."""
    numbers = [room.allowed]
    for _ in range(count):
        room = follow(room, full(room))
        numbers.append(room.allowed)
    return numbers


# -- the ramp --------------------------------------------------------------------------------------------------


def test_an_unknown_server_gets_64_within_a_second_and_no_more_without_an_answer() -> None:
    assert steps(Room.begin(UNKNOWN), 40) == [8, 16, 32] + [64] * 38


def test_a_number_that_an_operator_names_is_reached_in_some_seconds() -> None:
    numbers = steps(Room.begin(Bounds.of(10_000)), 12)
    assert numbers[:5] == [625, 1_250, 2_500, 5_000, 10_000]
    assert numbers[-1] == 10_000


def test_a_small_number_is_used_from_the_first_moment() -> None:
    assert Room.begin(Bounds.of(3)).allowed == 3


def test_the_number_does_not_grow_while_it_is_not_in_use() -> None:
    room = Room.begin(UNKNOWN)
    for _ in range(20):
        room = follow(room, Seen(PERIOD, 3.0, 3, left=3, ended=1, work=10, taken=1))
    assert room.allowed == START
    assert room.why is Why.WORK


def test_after_a_long_rest_the_number_is_reached_by_a_ramp_again() -> None:
    room = held_at(500)
    for _ in range(int(IDLE / PERIOD) + 1):
        room = follow(room, Seen(PERIOD, 0.0, 0))
    assert room.allowed == START
    assert max(steps(room, 8)) == 500


def test_the_reason_tells_what_keeps_the_number_from_growing_now() -> None:
    room = Room.begin(Bounds.of(16))
    room = follow(follow(room, full(room)), full(replace(room, number=16.0)))
    assert room.why is Why.LIMIT
    room = follow(room, Seen(PERIOD, 1.0, 1, left=1))
    assert room.why is Why.WORK
    assert follow(room, full(room)).why is Why.GROWING


def test_a_little_less_work_is_no_rest() -> None:
    room = held_at(100)
    for _ in range(1_000):
        room = follow(room, Seen(PERIOD, 70.0, 75, left=70))
    assert room.allowed == 100


def test_a_number_that_is_named_is_kept_where_the_first_answers_were_those_of_short_requests() -> None:
    room = replace(held_at(64, Bounds.of(64)), best_speed=10.0, holds=0.0)
    numbers = set()
    for _ in range(100):
        room = follow(room, full(room, ended=16, work=16 * 20.0, taken=16 * 4.0))
        numbers.add(room.allowed)
    assert numbers == {64}


# -- refusals --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("refused", "left"), [(2, 94), (20, 76), (60, 38)])
def test_what_the_server_took_is_kept_but_for_a_little(refused: int, left: int) -> None:
    room = held_at(100)
    assert follow(room, full(room, refused=refused, left=100 - refused, ended=1)).allowed == left


def test_one_refusal_costs_nothing_unless_it_comes_again_at_once() -> None:
    room = held_at(100)
    room = follow(room, full(room, refused=1, left=99, ended=9))
    assert room.allowed == 100
    assert follow(room, full(room, refused=1, left=99, ended=9)).allowed == 97


def test_refusals_that_come_one_by_one_after_many_answers_cost_nothing() -> None:
    room = held_at(100)
    for _ in range(12):
        for _ in range(12):
            room = follow(room, full(room, ended=9))
        room = follow(room, full(room, refused=1, left=99, ended=9))
    assert room.allowed >= 100


def test_refusals_of_what_was_sent_before_cost_no_second_cut() -> None:
    room = replace(held_at(100), took=5.0)
    room = follow(room, full(room, refused=20, left=80, ended=1))
    before = room.allowed
    room = follow(room, full(room, refused=3, ended=1))
    assert room.allowed == before - 3


def test_a_server_that_refuses_everything_is_asked_by_single_requests_ever_more_rarely() -> None:
    room = held_at(100)
    pauses = []
    for _ in range(10):
        room = follow(room, full(room, refused=room.allowed, left=0))
        assert room.allowed == 1
        pauses.append(room.pause)
    assert pauses == sorted(pauses)
    assert pauses[0] < 1
    assert pauses[-1] == LONGEST_PAUSE


def test_a_pause_is_as_long_as_the_server_asks_for() -> None:
    room = held_at(10)
    assert follow(room, full(room, refused=10, left=0, retry_after=20.0)).pause == 20.0


@pytest.mark.parametrize("ended", [0, 3])
def test_a_server_that_was_gone_is_given_as_much_as_before_when_it_is_back(ended: int) -> None:
    room = held_at(32.0)
    room = follow(room, Seen(PERIOD, 20.0, 32, left=0, ended=ended, work=ended, taken=ended, refused=29, lost=29))
    assert room.pause > 0
    for _ in range(round(60 / PERIOD)):
        room = follow(room, Seen(PERIOD, 0.0, 0))
    assert room.allowed == 1
    for _ in range(8):
        number = room.allowed
        room = follow(room, Seen(PERIOD, number, number, left=number, ended=number, work=number, taken=number))
    assert room.allowed >= 32


def test_a_few_connections_that_break_are_not_the_end_of_a_server() -> None:
    room = held_at(32.0)
    room = follow(room, Seen(PERIOD, 30.0, 32, left=28, ended=3, work=3, taken=3, refused=4, lost=4))
    assert room.pause == 0
    assert room.allowed >= 26


def test_after_a_pause_one_request_must_be_answered_before_the_ramp() -> None:
    room = held_at(100)
    room = follow(room, full(room, refused=100, left=0))
    assert max(steps(room, 20)) == 1
    room = follow(room, full(room, ended=1, work=10, taken=1))
    assert max(steps(room, 20)) >= 50


@pytest.mark.parametrize(
    ("code", "status", "lost", "queued", "refusal"),
    [
        ("rate_limited", 429, False, False, True),
        ("service_unavailable", 503, False, False, True),
        ("service_unavailable", None, False, False, True),
        ("timeout", 504, False, False, True),
        ("upstream_error", 529, False, False, True),
        ("upstream_error", None, True, False, True),
        ("service_unavailable", 503, False, True, False),
        ("upstream_error", 500, False, False, False),
        ("invalid_request", 400, False, False, False),
        (None, 200, False, False, False),
    ],
)
def test_what_counts_as_too_much(code: str | None, status: int | None, lost: bool, queued: bool, refusal: bool) -> None:
    tried = Try(status=status, code=code, lost_server=lost, queued=queued, retry_after=timedelta(seconds=1))
    assert is_refusal(tried) is refusal


# -- what the server says --------------------------------------------------------------------------------------


def test_a_server_that_says_that_it_computes_all_is_given_more_without_a_comparison() -> None:
    room = Room.begin(UNKNOWN)
    for _ in range(60):
        room = follow(room, full(room, signals=Signals(room.allowed, 0, 0.3)))
    assert room.allowed == MOST


def test_requests_that_wait_in_the_server_bring_the_number_down_to_what_it_computes() -> None:
    room = Room.begin(Bounds.of(512))
    for _ in range(60):
        waiting = max(0, room.allowed - 24)
        room = follow(room, full(room, signals=Signals(min(24, room.allowed), waiting)))
    assert 24 <= room.allowed <= 27
    assert room.why is Why.QUEUE


def test_one_look_at_a_short_queue_changes_nothing() -> None:
    room = held_at(64)
    assert follow(room, full(room, signals=Signals(24, 40))).allowed == 64


def test_requests_of_others_that_wait_push_ours_aside_but_for_a_few() -> None:
    room = held_at(64)
    for _ in range(60):
        room = follow(room, full(room, signals=Signals(100, 200)))
    assert room.allowed == START


def test_a_full_cache_stops_the_growth() -> None:
    room = Room.begin(Bounds.of(512))
    room = follow(room, full(room, signals=Signals(8, 0, 0.95)))
    assert room.why is Why.MEMORY
    assert max(steps(room, 30)) == room.allowed


# -- whatever happens ------------------------------------------------------------------------------------------


@st.composite
def periods(draw: st.DrawFn) -> tuple[float, float, int, int, float, float, Signals | None, bool]:
    """How full it was, what ended, what was refused, what the server said."""
    count = st.floats(0, 2_000, allow_nan=False)
    signals = st.builds(Signals, count, count, st.none() | st.floats(0, 1))
    return (
        draw(st.floats(0.01, 5.0)),
        draw(st.floats(0, 1.0)),
        draw(st.integers(0, 50)),
        draw(st.sampled_from([0, 0, 0, 1, 5, 1_000])),
        draw(st.floats(0, 1e6)),
        draw(st.floats(0, 1e4)),
        draw(st.none() | signals),
        draw(st.booleans()),
    )


def seen_of(room: Room, made: tuple[float, float, int, int, float, float, Signals | None, bool]) -> Seen:
    seconds, share, ended, refused, work, taken, signals, gone = made
    peak = round(room.allowed * share)
    left = 0 if gone else max(0, peak - refused)
    return Seen(seconds, peak * 0.9, peak, left, ended, work, taken, refused, seconds, signals)


@settings(max_examples=40)
@given(
    slots=st.none() | st.integers(1, 20_000),
    happens=st.lists(periods(), max_size=30),
)
def test_the_number_stays_within_its_bounds_and_never_more_than_doubles(
    slots: int | None, happens: list[tuple[float, float, int, int, float, float, Signals | None, bool]]
) -> None:
    room = Room.begin(Bounds.of(slots))
    for made in happens:
        before, known = room.allowed, room.refusals
        seen = seen_of(room, made)
        room = follow(room, seen)
        assert 1 <= room.allowed <= (slots or MOST)
        # One request more is no step, however small the number.
        assert room.allowed <= max(before * FASTEST + 1, before + 1)
        found = room.refusals
        if seen.refused and not (found.tolerated or found.came_down or known.came_down or found.is_lone):
            assert room.allowed <= max(1, before - min(seen.refused, before - 1))
        assert 0 <= room.pause <= LONGEST_PAUSE


@given(few=st.integers(1, 50), more=st.integers(0, 50), number=st.integers(1, 2_000))
def test_more_refusals_never_leave_more(few: int, more: int, number: int) -> None:
    room = held_at(float(number))
    after_few = follow(room, full(room, refused=few, ended=1))
    after_more = follow(room, full(room, refused=few + more, ended=1))
    assert after_more.allowed <= after_few.allowed


@settings(max_examples=20)
@given(st.lists(periods(), max_size=30))
def test_after_any_bad_spell_a_good_server_is_given_many_again(
    happens: list[tuple[float, float, int, int, float, float, Signals | None, bool]],
) -> None:
    room = Room.begin(UNKNOWN)
    for made in happens:
        room = follow(room, seen_of(room, made))
    for _ in range(60 * 30):
        # Each request takes a second and brings 100 tokens, however many there are.
        number = room.allowed if not room.pause else 0
        seen = Seen(1.0, float(number), number, number, number, 100.0 * number, float(number))
        room = follow(room, seen)
        if room.allowed >= SURE * 4:
            break
    assert room.allowed >= SURE * 4
