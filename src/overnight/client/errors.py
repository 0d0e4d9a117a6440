"""What a client raises.

OvernightError (a RuntimeError)
├── ApiError                 the server refused or failed: status, code, message, param, request_id
│   ├── BadRequest           400, 409, 413, 415 …: sending the same again will not help
│   ├── NotAllowed           401, 403
│   ├── NotFound             404, 410
│   ├── TooManyRequests      429, after the last retry
│   └── ServerFault          5xx
├── ConnectionFailed         no answer, or not all of it
├── BatchFailed              a batch ended otherwise than completed; the batch is at hand
├── DownloadDamaged          what came is not what the server has
└── WaitTimeout              (also a TimeoutError) a batch took longer than the caller would wait
"""

from __future__ import annotations

from typing import Any

import httpx


class OvernightError(RuntimeError):
    """Whatever a client raises by itself."""


class ApiError(OvernightError):
    """The server answered with an error. `code` is one of those that the reference lists; None where it sent none."""

    def __init__(
        self,
        status: int,
        code: str | None,
        message: str,
        param: str | None = None,
        request_id: str | None = None,
        *,
        final: bool = False,
    ) -> None:
        super().__init__(status, code, message, param, request_id)
        self.status = status
        self.code = code
        self.message = message
        self.param = param
        self.request_id = request_id
        self.final = final
        """The server said that sending the same again will not help."""

    def __str__(self) -> str:
        told = [str(self.status)]
        if self.code:
            told.append(self.code)
        if self.request_id:
            told.append(f"request id {self.request_id}")
        return f"{self.message} ({', '.join(told)})"


class BadRequest(ApiError):
    """What was sent is wrong, or too large, or at odds with what is there."""


class NotAllowed(ApiError):
    """The key is missing, wrong, or may not do this."""


class NotFound(ApiError):
    """There is no such batch, file or model, or it belongs to somebody else."""


class TooManyRequests(ApiError):
    """The server was still full after the last retry."""


class ServerFault(ApiError):
    """The server could not carry the call out."""


class ConnectionFailed(OvernightError):
    """The server could not be reached, or the connection broke before the whole answer had come."""


class BatchFailed(OvernightError):
    """A batch ended as failed, expired or cancelled. `batch` is the batch as it ended."""

    def __init__(self, batch: dict[str, Any]) -> None:
        super().__init__(batch)
        self.batch = batch

    def __str__(self) -> str:
        says = f"The batch {self.batch['id']} ended as {self.batch['status']}"
        reasons = [self.batch.get("error") or {}, *((self.batch.get("errors") or {}).get("data") or [])]
        reason = next((r["message"] for r in reasons if r.get("message")), None)
        return f"{says}: {reason}" if reason else f"{says}."


class DownloadDamaged(OvernightError):
    """The bytes that came have another SHA-256 than the server said; nothing of them was kept."""


class WaitTimeout(OvernightError, TimeoutError):
    """The batch has not ended within the time given; it goes on."""


_BY_STATUS = {401: NotAllowed, 403: NotAllowed, 404: NotFound, 410: NotFound, 429: TooManyRequests}


def of_response(response: httpx.Response) -> ApiError:
    """The error that a response with its body read carries, in the API's shape or any other."""
    try:
        told = response.json()["error"]
        # Some servers have numbers for codes.
        code, message, param = _text(told.get("code")), str(told["message"]), _text(told.get("param"))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        code, param = None, None
        # Not by the charset that the server names, which may be none that decodes text.
        text = response.content[:200].decode(errors="replace")
        message = f"The server answered {response.status_code} {response.reason_phrase}: {text!r}"
    status = response.status_code
    kind = _BY_STATUS.get(status, ServerFault if status >= 500 else BadRequest)
    final = response.headers.get("x-should-retry") == "false"
    return kind(status, code, message, param, response.headers.get("x-request-id"), final=final)


def _text(value: object) -> str | None:
    return None if value is None else str(value)
