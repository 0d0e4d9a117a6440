"""A model server's refusal, as it is shown to who asked: with its status, in the shape of OpenAI's errors."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from overnight.domain.outcome import Try
from overnight.upstreams.answer import read_reply
from overnight.upstreams.complaint import read_complaint
from overnight.upstreams.http import Broken, Reply

LONGEST_ERROR = 1_048_576
"""Bytes of an error's body that are read."""

_STATUS_OF = {"timeout": 504, "service_unavailable": 503}
"""Of calls without a reply, by their code; others are bad replies (502)."""
_KINDS = {400: "invalid_request_error", 401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}


@dataclass(frozen=True, slots=True)
class Refused:
    """The error to answer with. `retry_after` is in seconds; None where the same call would fail again."""

    status: int
    message: str
    kind: str
    param: str | None
    code: str
    retry_after: float | None


DEFAULT_WAIT = 2.0


def judge(came: Reply | Broken, *, is_local: bool, now: datetime) -> Try:
    """What a call came to that was not answered well."""
    return read_reply(came, most_bytes=LONGEST_ERROR, local_engine=is_local, now=now)


def as_refused(came: Reply | Broken, tried: Try) -> Refused:
    """The error to answer with, which keeps whatever the server said of it."""
    retry_after = None
    if tried.may_pass:
        retry_after = DEFAULT_WAIT if tried.retry_after is None else tried.retry_after.total_seconds()
    code = tried.code or "upstream_error"
    if isinstance(came, Broken):
        return Refused(_STATUS_OF.get(code, 502), tried.message, "server_error", None, code, retry_after)
    # A redirect or another 2xx with an error is nothing that a client should follow or believe.
    status = came.status if came.status >= 400 else 502
    is_too_long = code == "context_length_exceeded"
    if is_too_long:
        status = tried.status or status
    told = _fields(came.body)
    complaint = read_complaint(told)
    inner = told.get("error")
    fields = inner if isinstance(inner, dict) else told
    kind, param, named = fields.get("type"), fields.get("param"), fields.get("code")
    return Refused(
        status,
        complaint.message if complaint.message and not is_too_long else tried.message,
        kind if isinstance(kind, str) and kind and status == came.status else _KINDS.get(status, _kind_of(status)),
        param if isinstance(param, str) else None,
        named if isinstance(named, str) and named and not is_too_long else code,
        retry_after,
    )


def _kind_of(status: int) -> str:
    return "server_error" if status >= 500 else "invalid_request_error"


def _fields(body: bytes) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    return value if isinstance(value, dict) else {}
