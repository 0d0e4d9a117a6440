"""The answers of requests that will not run any more: what is said of each, and where it is counted."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

import msgspec

from overnight.domain import result
from overnight.domain.states import Status
from overnight.store.answers import ERROR, Answer


class _Named(msgspec.Struct):
    custom_id: str


_read_name = msgspec.json.Decoder(_Named).decode


@dataclass(frozen=True, slots=True)
class LastError:
    """How the last counted try at a request failed."""

    code: str
    message: str
    status: int | None


@dataclass(frozen=True, slots=True)
class Leftovers:
    """Requests of one block, and what is known of those that were sent before."""

    lines: Sequence[int]
    requests: Sequence[bytes]
    answered: Container[int]
    tries: Mapping[int, int]
    """Line → tries that were made; lines that were never sent are missing."""
    errors: Mapping[int, LastError]
    """Line → how its last try failed."""


def answers_for(batch: UUID, ends_as: Status, left: Leftovers) -> list[Answer]:
    """The answers of a block's requests that have none, in the block's order.

    In an expired batch a request that waited to be tried again failed with its last error. All others never ran:
    cancelled ones are in no count, the others count as failed.
    """
    found = []
    for line, request in zip(left.lines, left.requests, strict=True):
        if line in left.answered:
            continue
        tries = left.tries.get(line, 0)
        error = left.errors.get(line) if ends_as is Status.EXPIRED else None
        if error is None:
            error = LastError(*result.never_ran(ends_as, tries), None)
        text = result.failed(batch, line, _read_name(request).custom_id, error.code, error.message, error.status)
        found.append(
            Answer(
                line,
                text,
                ERROR,
                tries=tries,
                status=error.status,
                code=error.code,
                ran=ends_as is not Status.CANCELLED,
            )
        )
    return found
