"""What an owner is refused, with the limit and the number in the message, and whether waiting helps."""

from __future__ import annotations

import pytest

from overnight.domain.errors import NoRoomForFile, TooManyBatches, TooManyQueued, TooManyUploads
from overnight.domain.limits import Limits
from overnight.domain.owner_limits import refuse_batch, refuse_file, refuse_upload

LIMITS = Limits(batches_per_owner=10, requests_per_owner=1_000, uploads_per_hour=60, file_bytes_per_owner=5_000)


def test_what_is_exactly_at_a_limit_gets_in() -> None:
    refuse_batch(LIMITS, 9, 900, 100)
    refuse_upload(LIMITS, 59, None)
    refuse_file(LIMITS, 4_000, 1_000)


def test_one_batch_too_many_may_be_tried_again() -> None:
    with pytest.raises(TooManyBatches, match=r"10 unfinished batches of 10") as raised:
        refuse_batch(LIMITS, 10, 0, 1)
    assert (raised.value.again, raised.value.retry_after) == (True, 30)


def test_one_request_too_many_may_be_tried_again() -> None:
    with pytest.raises(TooManyQueued, match=r"901 unfinished requests of 1,000.*100 more") as raised:
        refuse_batch(LIMITS, 1, 901, 100)
    assert (raised.value.again, raised.value.retry_after) == (True, 30)


def test_a_batch_that_can_never_fit_is_refused_for_good() -> None:
    with pytest.raises(TooManyQueued, match="smaller") as raised:
        refuse_batch(LIMITS, 0, 0, 1_001)
    assert raised.value.again is False


@pytest.mark.parametrize(
    ("wait", "again", "retry_after", "when"),
    [(0.2, True, 1, "1 s"), (60.0, True, 60, "60 s"), (60.1, False, None, "2 min"), (3_600.0, False, None, "60 min")],
)
def test_an_upload_too_many_may_be_tried_again_where_that_helps_within_a_minute(
    wait: float, again: bool, retry_after: int | None, when: str
) -> None:
    with pytest.raises(TooManyUploads, match=rf"60 uploads .* of 60 .* {when}\.") as raised:
        refuse_upload(LIMITS, 60, wait)
    assert (raised.value.again, raised.value.retry_after) == (again, retry_after)


def test_waiting_makes_no_room_for_a_file() -> None:
    with pytest.raises(NoRoomForFile, match=r"4,000 bytes of 5,000 .* 1,001") as raised:
        refuse_file(LIMITS, 4_000, 1_001)
    assert raised.value.again is False
