"""The limits of one owner: what is refused, and whether waiting helps."""

from __future__ import annotations

from math import ceil

from overnight.domain.errors import NoRoomForFile, TooManyBatches, TooManyQueued, TooManyUploads
from overnight.domain.limits import Limits

RETRY_AFTER = 30
"""Seconds after which a create that found a limit reached may be worth another try."""
LONGEST_RETRY_AFTER = 60
"""Seconds; a longer wait is not one that client libraries should sit out."""


def refuse_batch(limits: Limits, unfinished: int, queued: int, more: int) -> None:
    """Raise TooManyBatches or TooManyQueued where an owner may not have another batch of `more` requests now.

    The owner has so many `unfinished` batches, with `queued` requests that are not answered.
    """
    most = limits.batches_per_owner
    if unfinished >= most:
        raise TooManyBatches(
            f"You have {unfinished:,} unfinished batches of {most:,} that you may have. "
            "Wait until one has ended, or cancel one.",
            retry_after=RETRY_AFTER,
        )
    most = limits.requests_per_owner
    if queued + more > most:
        raise TooManyQueued(
            f"You have {queued:,} unfinished requests of {most:,} that you may have, and this batch has {more:,} more. "
            + ("Wait until more are answered." if more <= most else "Create smaller batches."),
            retry_after=RETRY_AFTER,
            again=more <= most,
        )


def refuse_upload(limits: Limits, begun: int, wait: float | None) -> None:
    """Raise TooManyUploads where an owner who began so many uploads within the last hour may not begin another now.

    In `wait` seconds there is room for one again.
    """
    most = limits.uploads_per_hour
    if begun < most:
        return
    seconds = max(1, ceil(wait or 0))
    soon = seconds <= LONGEST_RETRY_AFTER
    when = f"{seconds} s" if soon else f"{ceil(seconds / 60)} min"
    raise TooManyUploads(
        f"You began {begun:,} uploads within the last hour, of {most:,} that you may begin. The next one may begin in "
        f"{when}.",
        retry_after=seconds if soon else None,
        again=soon,
    )


def refuse_file(limits: Limits, stored: int, more: int) -> None:
    """Raise NoRoomForFile where an owner who keeps `stored` bytes of input files may not keep `more`."""
    most = limits.file_bytes_per_owner
    if stored + more > most:
        raise NoRoomForFile(
            f"Your input files have {stored:,} bytes of {most:,} that you may keep, and this one has at least {more:,}."
            " Delete files that you need no more."
        )
