"""When a server may be asked again, and what becomes of models that wait for a machine."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.upstreams.judge import judge

QUEUED = {"error": {"message": "Waiting for a GPU.", "code": "model_queued"}}
TWO_MINUTES = timedelta(minutes=2)


@pytest.mark.parametrize(
    ("header", "wait"),
    [
        (None, TWO_MINUTES),
        ("30", timedelta(seconds=30)),
        ("0", timedelta(seconds=1)),
        ("-5", TWO_MINUTES),
        ("nan", TWO_MINUTES),
        ("inf", TWO_MINUTES),
        ("-inf", TWO_MINUTES),
        ("1e999", TWO_MINUTES),
        ("1e12", timedelta(hours=168)),
        ("soon", TWO_MINUTES),
        ("", TWO_MINUTES),
        ("Thu, 01 Jan 2026 00:10:00 GMT", timedelta(minutes=10)),
        ("Wed, 31 Dec 2025 23:59:59 GMT", TWO_MINUTES),
        ("Thu, 01 Jan 9999 00:00:00 GMT", timedelta(hours=168)),
        ("Mon, 01 Jan 99999999999999999999 00:00:00 GMT", TWO_MINUTES),
    ],
)
def test_a_queued_model_is_asked_again_in_its_time(header: str | None, wait: timedelta) -> None:
    came = judge(QUEUED, 503, header)
    assert (came.queued, came.retry_after, came.code) == (True, wait, "service_unavailable")
    assert not came.blames_route
    assert came.message == "Waiting for a GPU."


def test_only_a_503_says_that_a_model_is_queued() -> None:
    assert not judge(QUEUED, 500).queued
    assert not judge({"error": {"message": "busy"}}, 503).queued
    assert judge({"error": {"message": "m", "type": "model_queued", "code": 503}}, 503).queued


@pytest.mark.parametrize(
    ("header", "wait"),
    [
        (None, None),
        ("7", timedelta(seconds=7)),
        (" 1.5 ", timedelta(seconds=1.5)),
        ("0", timedelta(0)),
        ("-1", None),
        ("nan", None),
        ("1e12", timedelta(hours=168)),
        ("tomorrow", None),
        ("Thu, 01 Jan 2026 00:01:00 GMT", timedelta(minutes=1)),
        ("Thu, 01 Jan 2026 02:01:00 +0200", timedelta(minutes=1)),
        ("Mon, 01 Jan 2001 00:00:00 GMT", None),
        ("Thu, 99 Jan 2026 00:00:00 GMT", None),
        ("１０", None),
    ],
)
def test_retry_after_is_read_in_both_forms(header: str | None, wait: timedelta | None) -> None:
    for status in (408, 429, 500, 503):
        assert judge(b"{}", status, header).retry_after == wait
    assert judge(b"{}", 400, header).retry_after is None
