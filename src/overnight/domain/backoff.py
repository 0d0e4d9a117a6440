"""How long to wait before the next try."""

from __future__ import annotations

from datetime import timedelta

FIRST = timedelta(seconds=5)
LONGEST = timedelta(minutes=15)
LONGEST_ASKED_FOR = timedelta(hours=168)


def wait(tries: int, retry_after: timedelta | None, jitter: float) -> timedelta:
    """The wait after the `tries`-th try: 5 s doubling to 15 min, half fixed and half random.

    A longer `retry_after` of the server is honoured, up to a week. `jitter` is uniform in [0, 1).
    """
    doublings = min(tries - 1, 16)
    full = min(FIRST * (1 << doublings), LONGEST)
    own = full / 2 + full / 2 * jitter
    if retry_after is None:
        return own
    return max(own, min(retry_after, LONGEST_ASKED_FOR))
