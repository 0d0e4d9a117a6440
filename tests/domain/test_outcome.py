"""The law of retries: what follows from a try, and how long to wait."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overnight.domain import backoff
from overnight.domain.outcome import MOST_TRIES_WITHOUT_WINDOW, Again, Done, GiveUp, Try, Usage, decide, within_context

NOW = datetime(2026, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
GOOD = Try(status=200, body=b"{}")
REFUSED = Try(status=400, code="invalid_request", message="no")
BROKEN = Try(status=500, code="upstream_error", message="no", may_pass=True)


def seconds(tries: int, jitter: float, retry_after: float | None = None) -> float:
    asked = None if retry_after is None else timedelta(seconds=retry_after)
    return backoff.wait(tries, asked, jitter).total_seconds()


@pytest.mark.parametrize(
    ("tries", "least", "most"), [(1, 2.5, 5), (2, 5, 10), (3, 10, 20), (8, 320, 640), (9, 450, 900), (2_000, 450, 900)]
)
def test_waits_double_from_5_seconds_to_15_minutes_half_of_them_random(tries: int, least: float, most: float) -> None:
    assert seconds(tries, 0.0) == least
    assert seconds(tries, 0.5) == (least + most) / 2
    assert least <= seconds(tries, 0.999) < most


def test_a_longer_wait_that_the_server_asks_for_is_honoured() -> None:
    assert seconds(1, 0.0, 60) == 60
    assert seconds(9, 0.0, 60) == 450
    assert seconds(1, 0.0, 0) == 2.5


def test_no_server_makes_a_request_wait_for_more_than_a_week() -> None:
    assert seconds(1, 0.0, 1e9) == 7 * 24 * 3600


@pytest.mark.parametrize("came", [GOOD, REFUSED])
def test_what_no_other_try_would_change_is_done(came: Try) -> None:
    assert decide(came, 1, NOW, NOW + HOUR, 0.5) == Done()
    assert decide(came, 1, NOW, NOW - HOUR, 0.5) == Done()
    assert decide(came, 5_000, NOW, None, 0.5) == Done()


def test_what_may_pass_is_tried_again() -> None:
    assert decide(BROKEN, 1, NOW, NOW + HOUR, 0.0) == Again(NOW + timedelta(seconds=2.5))
    assert decide(BROKEN, 4, NOW, NOW + HOUR, 0.0) == Again(NOW + timedelta(seconds=20))


def test_a_try_that_would_start_when_the_window_closes_is_not_made() -> None:
    ends = NOW + timedelta(seconds=2.5)
    assert isinstance(decide(BROKEN, 1, NOW, ends, 0.0), GiveUp)
    assert isinstance(decide(BROKEN, 1, NOW, ends + timedelta(microseconds=1), 0.0), Again)


def test_a_wait_that_the_server_asks_for_may_end_after_the_window() -> None:
    busy = Try(status=429, code="rate_limited", message="no", may_pass=True, retry_after=2 * HOUR)
    assert isinstance(decide(busy, 1, NOW, NOW + HOUR, 0.0), GiveUp)


def test_without_a_window_the_number_of_tries_ends_them() -> None:
    assert isinstance(decide(BROKEN, MOST_TRIES_WITHOUT_WINDOW - 1, NOW, None, 0.0), Again)
    assert isinstance(decide(BROKEN, MOST_TRIES_WITHOUT_WINDOW, NOW, None, 0.0), GiveUp)


def test_what_a_model_wrote_and_its_server_cannot_read_is_tried_three_times() -> None:
    unreadable = Try(status=500, code="upstream_error", message="no", may_pass=True, unreadable=True)
    assert isinstance(decide(unreadable, 2, NOW, NOW + HOUR, 0.0), Again)
    assert isinstance(decide(unreadable, 3, NOW, NOW + HOUR, 0.0), GiveUp)
    assert isinstance(decide(unreadable, 3, NOW, None, 0.0), GiveUp)


def test_with_a_window_the_number_of_tries_does_not_matter() -> None:
    assert isinstance(decide(BROKEN, MOST_TRIES_WITHOUT_WINDOW * 2, NOW, NOW + HOUR, 0.0), Again)


@given(
    st.integers(1, 3_000),
    st.floats(0, 1, exclude_max=True),
    st.none() | st.timedeltas(timedelta(0), timedelta(days=30)),
)
def test_a_next_try_is_always_later_and_within_the_window(tries: int, jitter: float, asked: timedelta | None) -> None:
    came = Try(status=503, code="service_unavailable", message="no", may_pass=True, retry_after=asked)
    follows = decide(came, tries, NOW, NOW + 24 * HOUR, jitter)
    if isinstance(follows, Again):
        assert NOW + timedelta(seconds=2.5) <= follows.at < NOW + 24 * HOUR
        assert asked is None or follows.at - NOW >= min(asked, backoff.LONGEST_ASKED_FOR)
    else:
        assert isinstance(follows, GiveUp)


def test_a_prompt_beyond_the_context_of_its_batch_is_an_error_with_both_numbers() -> None:
    came = Try(status=200, body=b"{}", usage=Usage(input=1_201, output=9))
    for most in (None, 1_201, 2_000):
        assert within_context(came, most, b"{}") is came
    refused = within_context(came, 1_200, b'{"body":{"prompt":"one"}}')
    assert (refused.code, refused.body, refused.usage) == ("context_length_exceeded", None, came.usage)
    assert refused.message == "Prompt length 1201 exceeds the batch's max_context_length 1200"
    assert decide(refused, 1, NOW, None, 0.5) == Done()
    assert within_context(REFUSED, 1, b"{}") is REFUSED


@pytest.mark.parametrize(
    ("body", "several"),
    [
        (b'{"input":["a","b"]}', True),
        (b'{"prompt":[[1,2],[3]]}', True),
        (b'{"input":["a"]}', False),
        (b'{"prompt":[1,2,3]}', False),
        (b'{"messages":[{"role":"user","content":"a"}]}', False),
    ],
)
def test_the_sum_of_several_prompts_is_held_against_none_of_them(body: bytes, several: bool) -> None:
    came = Try(status=200, body=b"{}", usage=Usage(input=30))
    assert (within_context(came, 20, b'{"body":' + body + b"}") is came) is several
