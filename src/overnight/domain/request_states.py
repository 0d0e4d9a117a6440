"""The states in which a request is shown: derived, since a request has no row that would be changed."""

from __future__ import annotations

from enum import StrEnum

from overnight.domain.states import Status


class RequestStatus(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"


_NEVER_RAN = {"batch_cancelled": RequestStatus.CANCELLED, "batch_expired": RequestStatus.EXPIRED}

_LEFT_BY = {
    Status.CANCELLED: RequestStatus.CANCELLED,
    Status.EXPIRED: RequestStatus.EXPIRED,
    Status.FAILED: RequestStatus.FAILED,
}


def of_answer(code: str | None) -> RequestStatus:
    """The state of an answered request; `code` is that of its error, None where it has a response."""
    if code is None:
        return RequestStatus.COMPLETED
    return _NEVER_RAN.get(code, RequestStatus.FAILED)


def of_unanswered(ends_as: Status | None, *, is_running: bool, has_failed: bool) -> RequestStatus:
    """The state of a request without an answer.

    `ends_as` is how its batch must end, None while that is open; `has_failed` says that a try of it failed. In an
    expired batch such a request has failed: its last error is its answer.
    """
    if is_running:
        return RequestStatus.RUNNING
    if ends_as is None:
        return RequestStatus.QUEUED
    if ends_as is Status.EXPIRED and has_failed:
        return RequestStatus.FAILED
    return _LEFT_BY[ends_as]
