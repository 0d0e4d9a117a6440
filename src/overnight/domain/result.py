"""The lines of result files: one JSON object for each request, in the shape that OpenAI's batches have."""

from __future__ import annotations

from uuid import UUID

import msgspec

from overnight.domain import ids
from overnight.domain.outcome import Try
from overnight.domain.states import Status

_encode = msgspec.json.encode

_NEVER_RAN = {
    Status.CANCELLED: ("batch_cancelled", "The batch was cancelled before this request"),
    Status.EXPIRED: ("batch_expired", "The batch's window closed before this request"),
    Status.FAILED: ("batch_failed", "The batch failed before this request"),
}


def never_ran(ends_as: Status, tries: int) -> tuple[str, str]:
    """The code and the sentence for a request that a batch's end has left without an answer."""
    code, says = _NEVER_RAN[ends_as]
    return code, f"{says} was run{' again' if tries else ''}."


def text(value: str) -> bytes:
    """A string as JSON that no client splits: U+2028, U+2029 and U+0085 are escaped."""
    return safe_to_split(_encode(value))


def safe_to_split(line: bytes) -> bytes:
    """Escape what `str.splitlines` would split at. In valid JSON these can only stand inside strings."""
    if b"\xe2\x80" in line:
        line = line.replace(b"\xe2\x80\xa8", b"\\u2028").replace(b"\xe2\x80\xa9", b"\\u2029")
    if b"\xc2\x85" in line:
        line = line.replace(b"\xc2\x85", b"\\u0085")
    return line


def answered(batch: UUID, line: int, custom_id: str, request_id: str, status: int, body: bytes) -> bytes:
    """The line of a request that was answered; `body` is one line of JSON already."""
    return b'{"id":"%b","custom_id":%b,"response":{"status_code":%d,"request_id":"%b","body":%b},"error":null}\n' % (
        ids.of_request(batch, line).encode(),
        text(custom_id),
        status,
        request_id.encode(),
        body,
    )


def failed(
    batch: UUID,
    line: int,
    custom_id: str,
    code: str,
    message: str,
    status: int | None = None,
    body: bytes | None = None,
) -> bytes:
    """The line of a request that ended in an error; `status` and `body` are the upstream's, where it said any."""
    more = b"" if status is None else b',"status":%d' % status
    if body is not None:
        more += b',"body":' + safe_to_split(body)
    return b'{"id":"%b","custom_id":%b,"response":null,"error":{"code":"%b","message":%b%b}}\n' % (
        ids.of_request(batch, line).encode(),
        text(custom_id),
        code.encode(),
        text(message),
        more,
    )


def of_try(batch: UUID, line: int, custom_id: str, request_id: str, came: Try) -> bytes:
    """The line for the last try at a request."""
    if came.code is None:
        return answered(batch, line, custom_id, request_id, came.status or 200, came.body or b"null")
    return failed(batch, line, custom_id, came.code, came.message, came.status, came.error_body)
