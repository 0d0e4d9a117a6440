"""A request that runs alone comes to its turn, and all others have most of the time."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from overnight.domain.alone import FIRST_WAIT, OTHERS_LONGER, Turns

LONGEST = 3_600.0


@given(st.floats(0.0, LONGEST))
def test_it_runs_in_the_end_however_long_requests_take_and_others_have_three_quarters_of_the_time(took: float) -> None:
    """`took` seconds pass, from whenever others start nothing, until nothing runs."""
    turns = Turns()
    now = start = 1_000.0
    stood_still = 0.0
    for _ in range(20):
        assert turns.is_due(now)
        turns = turns.begin(now)
        if not turns.is_over(now + took, LONGEST):
            break
        wait = next(
            turns.wait * part / 8 for part in range(1, 9) if turns.is_over(now + turns.wait * part / 8, LONGEST)
        )
        stood_still += wait
        turns = turns.end_in_vain(now + wait)
        now += wait + OTHERS_LONGER * wait
        assert not turns.is_due(now - 0.001)
        assert stood_still <= (now - start) / (1 + OTHERS_LONGER) + 0.001
    else:
        raise AssertionError("it never ran")
    assert now - start <= (1 + OTHERS_LONGER) * 4 * max(took, FIRST_WAIT)


def test_after_a_run_others_go_on_for_three_times_as_long_and_waits_are_short_again() -> None:
    turns = Turns().begin(0.0).end_in_vain(30.0).begin(200.0).end(220.0)
    assert (turns.is_due(279.0), turns.is_due(280.0)) == (False, True)
    turns = turns.begin(300.0)
    assert (turns.is_over(329.0, LONGEST), turns.is_over(330.0, LONGEST)) == (False, True)


def test_nobody_waits_for_longer_than_any_request_takes_and_a_little() -> None:
    turns = Turns()
    for _ in range(20):
        turns = turns.begin(0.0).end_in_vain(0.0)
    turns = turns.begin(0.0)
    assert (turns.is_over(39.0, 10.0), turns.is_over(40.0, 10.0)) == (False, True)
