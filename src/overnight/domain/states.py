"""The states of a batch and the arrows between them."""

from __future__ import annotations

from enum import StrEnum


class Status(StrEnum):
    VALIDATING = "validating"
    IN_PROGRESS = "in_progress"
    FINALIZING = "finalizing"
    COMPLETED = "completed"
    EXPIRED = "expired"
    FAILED = "failed"
    CANCELLING = "cancelling"
    CANCELLED = "cancelled"


FOLLOWS: dict[Status, frozenset[Status]] = {
    Status.VALIDATING: frozenset({Status.IN_PROGRESS, Status.FAILED, Status.CANCELLING}),
    Status.IN_PROGRESS: frozenset({Status.FINALIZING, Status.CANCELLING}),
    Status.CANCELLING: frozenset({Status.FINALIZING}),
    Status.FINALIZING: frozenset({Status.COMPLETED, Status.EXPIRED, Status.FAILED, Status.CANCELLED}),
    Status.COMPLETED: frozenset(),
    Status.EXPIRED: frozenset(),
    Status.FAILED: frozenset(),
    Status.CANCELLED: frozenset(),
}
"""What may follow each state; the statements in store/sql/batch.sql take these arrows and no others."""

FINAL: frozenset[Status] = frozenset(s for s, after in FOLLOWS.items() if not after)
