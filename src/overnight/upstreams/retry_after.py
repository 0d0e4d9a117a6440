"""When a server says it may be asked again (RFC 9110, section 10.2.3)."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

LONGEST = timedelta(hours=168)
WAIT_FOR_QUEUED = timedelta(minutes=2)
# A queued model that asks for no wait at all would be asked without end.
_SHORTEST_FOR_QUEUED = timedelta(seconds=1)


def read_retry_after(value: str | None, now: datetime) -> timedelta | None:
    """The wait that a Retry-After asks for, at most 168 hours; None without one, or when it makes no sense.

    Both forms are read, seconds and a date; a negative or not finite number and a date that is past make no sense.
    """
    if value is None or not value.isascii():
        return None
    value = value.strip()
    seconds = _read_seconds(value)
    if seconds is None:
        seconds = _read_date(value, now)
    if seconds is None or not math.isfinite(seconds) or seconds < 0:
        return None
    return timedelta(seconds=min(seconds, LONGEST.total_seconds()))


def read_queued_wait(value: str | None, now: datetime) -> timedelta:
    """The wait before a queued model is asked again: Retry-After, or two minutes without one that makes sense."""
    asked = read_retry_after(value, now)
    return WAIT_FOR_QUEUED if asked is None else max(asked, _SHORTEST_FOR_QUEUED)


def _read_seconds(value: str) -> float | None:
    try:
        return float(value)
    except ValueError:
        return None


def _read_date(value: str, now: datetime) -> float | None:
    try:
        moment = parsedate_to_datetime(value)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        return (moment - now).total_seconds()
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
