"""A stored file, and how it is shown."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeAlias
from uuid import UUID

from overnight.domain import ids
from overnight.domain.limits import PROBLEMS_SHOWN_ON_FILE
from overnight.domain.lines import Problem
from overnight.store.pool import Row

Digest: TypeAlias = bytes


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file that is there for its owner: an input that was uploaded, or a result of a batch."""

    no: int
    id: UUID
    owner: int
    purpose: str
    filename: str
    bytes: int
    lines: int
    """Requests or results: lines that are not blank."""
    sha256: Digest
    checks: int
    """The version of the checks that its lines went through; 0: none, or not all of them."""
    problem_count: int
    problems: tuple[Problem, ...]
    """What those checks found, as far as it was asked for."""
    batch: int | None
    kind: int | None
    """Of an output: the batch and the kind of the result stream that it is."""
    created_at: datetime
    expires_at: datetime | None

    @property
    def public_id(self) -> str:
        return ids.show(ids.FILE, self.id)

    @property
    def etag(self) -> str:
        """The strong validator of its bytes (RFC 9110, section 8.8.3), quotes included."""
        return f'"{self.sha256.hex()}"'


def of_row(row: Row) -> StoredFile:
    """Read a row of `file`."""
    return StoredFile(
        no=row["no"],
        id=row["id"],
        owner=row["owner"],
        purpose=row["purpose"],
        filename=row["filename"],
        bytes=row["bytes"],
        lines=row["lines"],
        sha256=row["sha256"],
        checks=row["checks"],
        problem_count=row["problem_count"],
        problems=tuple(Problem(p["code"], p["line"], p["message"], p["param"]) for p in row["problems"] or ()),
        batch=row["batch"],
        kind=row["kind"],
        created_at=row["created_at"],
        expires_at=row["expires_at"],
    )


def problem_as_json(problem: Problem) -> dict[str, Any]:
    """An entry of `problems`, as a batch's `errors` have it: people count lines from 1."""
    line = None if problem.line is None else problem.line + 1
    return {"code": problem.code, "line": line, "message": problem.message, "param": problem.param}


def as_json(file: StoredFile) -> dict[str, Any]:
    """The public object of a file."""
    return {
        "id": file.public_id,
        "object": "file",
        "bytes": file.bytes,
        "created_at": int(file.created_at.timestamp()),
        "expires_at": None if file.expires_at is None else int(file.expires_at.timestamp()),
        "filename": file.filename,
        "purpose": file.purpose,
        # All checks are made while the bytes arrive, so a file can be used as soon as it is there.
        "status": "processed",
        "status_details": None,
        "sha256": file.sha256.hex(),
        "lines": file.lines,
        "problems": _problems_as_json(file),
    }


def _problems_as_json(file: StoredFile) -> dict[str, Any] | None:
    if file.problem_count == 0:
        return None
    return {
        "count": file.problem_count,
        "first": [problem_as_json(p) for p in file.problems[:PROBLEMS_SHOWN_ON_FILE]],
    }
