"""What a try came to, judged by what the upstream sent. Nothing that an upstream sends raises here."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from overnight.domain.outcome import Try, Usage
from overnight.upstreams.call import Broken, BrokenKind, Reply
from overnight.upstreams.complaint import Complaint, find_error, read_complaint
from overnight.upstreams.json_line import NotJsonError, decode_leniently, decode_strictly, error_value
from overnight.upstreams.retry_after import read_queued_wait, read_retry_after
from overnight.upstreams.usage import read_usage


@dataclass(frozen=True, slots=True)
class _Verdict:
    """What an HTTP status means for a request and for its route."""

    code: str
    may_pass: bool = False
    blames_route: bool = False


_REFUSED = _Verdict("invalid_request")
_FORBIDDEN = _Verdict("forbidden")
_WAIT = _Verdict("upstream_error", may_pass=True)
_VERDICTS = {
    401: _FORBIDDEN,
    403: _FORBIDDEN,
    404: _Verdict("model_not_found"),
    408: _WAIT,
    425: _WAIT,
    429: _Verdict("rate_limited", may_pass=True),
    503: _Verdict("service_unavailable", may_pass=True, blames_route=True),
    504: _Verdict("timeout"),
}
_SERVER_ERROR = _Verdict("upstream_error", may_pass=True, blames_route=True)
# A redirect, say: the base URL of the route is wrong, and asking again changes nothing.
_UNEXPECTED = _Verdict("upstream_error")
_MOST_ERROR_BYTES_READ = 1024 * 1024
_WORDS_BYTES = 1_000
_CONTEXT_STATUSES = frozenset({400, 413, 422, 500})

# What vLLM says to all that it was working on when it dies, now and in older versions.
_DYING = ("The server had an error while processing your request.", "EngineCore encountered an issue.")

# What llama.cpp says when its parser of chat formats cannot read a whole output, such as JSON that ends at the limit.
_UNREADABLE = "The model produced output that does not match the expected"

_UNREACHABLE = _Verdict("service_unavailable", may_pass=True, blames_route=True)
_BROKEN = {
    BrokenKind.REFUSED: _UNREACHABLE,
    BrokenKind.CONNECT_TIMEOUT: _UNREACHABLE,
    BrokenKind.NO_ADDRESS: _UNREACHABLE,
    BrokenKind.TLS: _UNREACHABLE,
    BrokenKind.NO_SOCKET: _Verdict("service_unavailable", may_pass=True),
    BrokenKind.CLOSED: _SERVER_ERROR,
    BrokenKind.CUT: _SERVER_ERROR,
    BrokenKind.GARBAGE: _SERVER_ERROR,
    BrokenKind.TOO_LARGE: _Verdict("result_too_large"),
    BrokenKind.TOO_LONG: _Verdict("context_length_exceeded"),
    BrokenKind.TIMEOUT: _Verdict("timeout"),
    BrokenKind.CANCELLED: _WAIT,
}
_BROKE = (BrokenKind.CLOSED, BrokenKind.CUT)
_STATUS_OF_BROKEN = {BrokenKind.GARBAGE: 502, BrokenKind.TOO_LONG: 400}


def read_reply(reply: Reply | Broken, *, most_bytes: int, local_engine: bool = False, now: datetime) -> Try:
    """Judge one try.

    `most_bytes` bounds a result as it would be stored. With `local_engine` the server is one that Overnight
    supervises: its absence is the supervisor's business, and counts against no route.
    """
    if isinstance(reply, Broken):
        return _read_broken(reply, local_engine)
    if 200 <= reply.status < 300:
        return _read_success(reply, most_bytes, local_engine, now)
    return _read_failure(reply, reply.status, _read_error_body(reply.body), local_engine, now)


def _read_broken(broken: Broken, local_engine: bool) -> Try:
    verdict = _BROKEN[broken.kind]
    return Try(
        status=_STATUS_OF_BROKEN.get(broken.kind),
        code=verdict.code,
        message=broken.message,
        may_pass=verdict.may_pass,
        blames_route=verdict.blames_route and not local_engine,
        lost_server=broken.sent and broken.kind in _BROKE,
        gone=broken.kind in (BrokenKind.REFUSED, *_BROKE),
    )


def _read_success(reply: Reply, most_bytes: int, local_engine: bool, now: datetime) -> Try:
    try:
        value, line = decode_strictly(reply.body)
    except NotJsonError as reason:
        usage = read_usage(decode_leniently(reply.body))
        return _spoilt(reply, f"The upstream's reply is not valid JSON: {reason}.", usage)
    usage = read_usage(value)
    error = find_error(value)
    if error is not None:
        status = read_complaint(error).status or 502
        return _read_failure(reply, status, error, local_engine, now)
    if not isinstance(value, dict):
        return _spoilt(reply, "The upstream's reply is not a JSON object.", usage)
    if len(line) > most_bytes:
        told = f"The reply has {len(line):,} bytes, more than the {most_bytes:,} that one result may have."
        return Try(status=reply.status, code="result_too_large", message=told, usage=usage)
    return Try(status=reply.status, body=line, usage=usage)


def _spoilt(reply: Reply, message: str, usage: Usage) -> Try:
    return Try(status=502, code="upstream_error", message=message, error_body=error_value(reply.body), usage=usage)


def _read_error_body(body: bytes) -> object:
    """The decoded body of an error reply; its first words where it is not JSON, or too large to be one."""
    if len(body) <= _MOST_ERROR_BYTES_READ:
        try:
            return decode_strictly(body)[0]
        except NotJsonError:
            pass
    return body[:_WORDS_BYTES].decode("utf-8", "replace")


def _read_failure(reply: Reply, status: int, value: object, local_engine: bool, now: datetime) -> Try:
    complaint = read_complaint(value)
    error_body, usage = error_value(reply.body), read_usage(value)
    if complaint.is_about_context and status in _CONTEXT_STATUSES:
        told = _tell_lengths(complaint)
        # llama.cpp calls an input that is too long to embed an error of its own.
        status = 400 if status == 500 else status
        return Try(status=status, code="context_length_exceeded", message=told, error_body=error_body, usage=usage)
    if status == 503 and "model_queued" in complaint.names:
        return Try(
            status=status,
            code="service_unavailable",
            message=complaint.message or "The model waits for a machine.",
            error_body=error_body,
            usage=usage,
            retry_after=read_queued_wait(reply.retry_after, now),
            may_pass=True,
            queued=True,
        )
    verdict = _judge(status)
    unreadable = status == 500 and complaint.message.startswith(_UNREADABLE)
    return Try(
        status=status,
        code=verdict.code,
        message=_tell(status, complaint),
        error_body=error_body,
        usage=usage,
        retry_after=read_retry_after(reply.retry_after, now) if verdict.may_pass else None,
        may_pass=verdict.may_pass,
        # A local engine answers 503 while it loads its model, and once it has died.
        blames_route=verdict.blames_route and not unreadable and not (local_engine and status == 503),
        lost_server=local_engine and (status == 503 or (status == 500 and complaint.message.startswith(_DYING))),
        unreadable=unreadable,
    )


def _judge(status: int) -> _Verdict:
    known = _VERDICTS.get(status)
    if known is not None:
        return known
    if 400 <= status < 500:
        return _REFUSED
    return _SERVER_ERROR if status >= 500 else _UNEXPECTED


def _tell(status: int, complaint: Complaint) -> str:
    if complaint.message:
        return f"The upstream answered {status}: {complaint.message}"
    if status < 400:
        return f"The upstream answered {status} instead of a result. Check the base URL of the route."
    return f"The upstream answered {status} and did not say why."


def _tell_lengths(complaint: Complaint) -> str:
    prompt, context = complaint.prompt, complaint.context
    if prompt is None or context is None:
        return complaint.message or "The prompt is longer than the model's context."
    if prompt > context:
        length = f"of at least {prompt}" if complaint.is_least else f"{prompt}"
        return f"Prompt length {length} exceeds model context {context}"
    return f"Prompt length {prompt} with the output asked for exceeds model context {context}"
