"""A batch as it is shown: OpenAI's object, and what Overnight knows beyond it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from overnight.domain import ids
from overnight.domain.states import FINAL, Status
from overnight.domain.waiting import waiting_for
from overnight.store.pool import Row

_DEFAULTS = ("max_decoding_length", "max_context_length", "temperature", "top_p", "top_k")

LONGEST_ESTIMATE = timedelta(days=365)
"""Beyond that there is no telling."""


@dataclass(frozen=True, slots=True)
class Counts:
    """Requests by outcome. `cancelled` ones are in neither of the other two."""

    total: int
    completed: int
    failed: int
    cancelled: int

    @property
    def unanswered(self) -> int:
        return self.total - self.completed - self.failed - self.cancelled


@dataclass(frozen=True, slots=True)
class Tokens:
    """What the answered requests used. `cached` is part of `input`, `reasoning` of `output`."""

    input: int
    cached: int
    output: int
    reasoning: int


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a batch is that has not ended."""

    waiting: int
    """Requests without an answer that don't run; none where nothing starts any more."""
    running: int
    """At most this many run: a worker's figures are as old as its last heartbeat, and batches share a worker."""
    per_minute: float | None
    """Answers a minute of the time in which its requests could run; None before the first could. Pauses don't count."""
    estimated_finish_at: datetime | None
    """When it will be done if it goes on as it did so far; None where nothing can be said."""
    ahead: int
    """Requests of its owner's batches that are due sooner: most of them start first. Those of others start beside."""
    waiting_for: str | None
    """Why nothing of it can start now, one of `domain.waiting`; None where something can, or nothing is to start."""


@dataclass(frozen=True, slots=True)
class Moments:
    """When what happened to a batch; None where it did not."""

    created_at: datetime
    expires_at: datetime | None
    in_progress_at: datetime | None
    finalizing_at: datetime | None
    completed_at: datetime | None
    failed_at: datetime | None
    expired_at: datetime | None
    cancelling_at: datetime | None
    cancelled_at: datetime | None
    results_expires_at: datetime | None


@dataclass(frozen=True, slots=True)
class BatchView:
    """A batch at one moment."""

    no: int
    id: UUID
    owner: int
    endpoint: str
    status: Status
    model: str | None
    paused: dict[str, Any] | None
    input_file_id: UUID | None
    output_file_id: UUID | None
    error_file_id: UUID | None
    retry_of: UUID | None
    completion_window: str
    metadata: dict[str, str]
    defaults: dict[str, Any]
    counts: Counts
    tokens: Tokens
    cost_nano_usd: int
    cost_unknown_attempts: int
    error: tuple[str, str] | None
    """Code and message, where the whole batch failed or no request of it got a response."""
    errors: list[dict[str, Any]] | None
    moments: Moments
    progress: Progress | None

    @property
    def public_id(self) -> str:
        return ids.show(ids.BATCH, self.id)


def of_row(row: Row, measured: Row | None) -> BatchView:
    """Read a row of `batch`, with what was measured of its progress where it has not ended."""
    status = Status(row["status"])
    counts = Counts(row["total"], row["completed"], row["failed"], row["cancelled"])
    return BatchView(
        no=row["no"],
        id=row["id"],
        owner=row["owner"],
        endpoint=row["endpoint"],
        status=status,
        model=row["model"],
        paused=None if status in FINAL else row["paused"],
        input_file_id=row["input_file_id"],
        output_file_id=row["output_file_id"],
        error_file_id=row["error_file_id"],
        retry_of=row["retry_of"],
        completion_window=row["completion_window"],
        metadata=row["metadata"],
        defaults=row["defaults"],
        counts=counts,
        tokens=Tokens(row["input_tokens"], row["cached_tokens"], row["output_tokens"], row["reasoning_tokens"]),
        cost_nano_usd=row["cost_nano_usd"],
        cost_unknown_attempts=row["cost_unknown_attempts"],
        error=None if row["error_code"] is None else (row["error_code"], row["error_message"]),
        errors=row["errors"],
        moments=Moments(**{name: row[name] for name in Moments.__slots__}),
        progress=None if status in FINAL or measured is None else _progress(row, counts, measured),
    )


def _progress(row: Row, counts: Counts, measured: Row) -> Progress:
    unanswered = counts.unanswered
    running = min(measured["running"], unanswered)
    may_start = row["ends_as"] is None
    waits_for = _waiting_for(measured) if may_start and unanswered > running else None
    answers = counts.completed + counts.failed
    per_minute = finish = None
    if measured["seconds"] is not None:
        elapsed = max(measured["seconds"], 1.0)
        per_minute = round(answers * 60 / elapsed, 2)
        if (
            answers
            and may_start
            and waits_for is None
            and unanswered * elapsed / answers < LONGEST_ESTIMATE.total_seconds()
        ):
            finish = row["now"] + timedelta(seconds=unanswered * elapsed / answers)
    return Progress(
        waiting=unanswered - running if may_start else 0,
        running=running,
        per_minute=per_minute,
        estimated_finish_at=finish,
        ahead=measured["ahead"] if may_start else 0,
        waiting_for=waits_for,
    )


def _waiting_for(measured: Row) -> str | None:
    return waiting_for(
        is_paused=measured["is_paused"],
        cap=measured["cap"],
        reserve=measured["reserve"],
        is_queued=measured["is_queued"],
        servers=measured["servers"],
    )


def as_json(view: BatchView) -> dict[str, Any]:
    """The public object of a batch."""
    tokens = view.tokens
    moments = {name: _seconds(getattr(view.moments, name)) for name in Moments.__slots__}
    return {
        "id": view.public_id,
        "object": "batch",
        "endpoint": view.endpoint,
        "model": view.model,
        "errors": None if view.errors is None else {"object": "list", "data": view.errors},
        "input_file_id": _file(view.input_file_id),
        "completion_window": view.completion_window,
        "status": view.status.value,
        "output_file_id": _file(view.output_file_id),
        "error_file_id": _file(view.error_file_id),
        **moments,
        "request_counts": {
            "total": view.counts.total,
            "completed": view.counts.completed,
            "failed": view.counts.failed,
        },
        "usage": {
            "input_tokens": tokens.input,
            "input_tokens_details": {"cached_tokens": tokens.cached},
            "output_tokens": tokens.output,
            "output_tokens_details": {"reasoning_tokens": tokens.reasoning},
            "total_tokens": tokens.input + tokens.output,
        },
        "metadata": view.metadata,
        # The version of Anthropic's API that a batch of Messages was created with; no such batch can be made yet.
        "anthropic_version": None,
        "cost_usd": view.cost_nano_usd / 1e9,
        "cost_unknown_attempts": view.cost_unknown_attempts,
        "error": None if view.error is None else {"code": view.error[0], "message": view.error[1]},
        **{name: view.defaults.get(name) for name in _DEFAULTS},
        "paused": view.paused,
        "progress": None if view.progress is None else _progress_as_json(view.progress),
        "retry_of": None if view.retry_of is None else ids.show(ids.BATCH, view.retry_of),
    }


def _progress_as_json(progress: Progress) -> dict[str, Any]:
    return {
        "waiting": progress.waiting,
        "running": progress.running,
        "per_minute": progress.per_minute,
        "estimated_finish_at": _seconds(progress.estimated_finish_at),
        "ahead": progress.ahead,
        "waiting_for": progress.waiting_for,
    }


def _file(value: UUID | None) -> str | None:
    return None if value is None else ids.show(ids.FILE, value)


def _seconds(moment: datetime | None) -> int | None:
    return None if moment is None else int(moment.timestamp())
