"""Everything that Overnight refuses or answers with an error: class, code, HTTP status and a sentence to act on.

Refusal                      the answer to an API call that is not carried out
├── BadRequest               400  what was sent is wrong and will stay wrong
│   ├── InvalidJSON          400  invalid_json
│   ├── InvalidParameter     400  invalid_parameter
│   ├── MissingParameter     400  missing_required_parameter
│   ├── UnknownParameter     400  unknown_parameter
│   ├── EmptyFile            400  empty_file
│   ├── FileNotUsable        400  file_not_found
│   ├── UploadNotPending     400  upload_not_pending
│   ├── DuplicateBatch       400  duplicate_batch
│   ├── TooManyRequests      400  too_many_requests
│   └── RequestsRefused      400  the code of the first problem
├── Forbidden                403  forbidden
├── NotFound                 404  not_found
│   ├── FileNotFound         404  file_not_found
│   ├── UploadNotFound       404  upload_not_found
│   ├── BatchNotFound        404  batch_not_found
│   └── ModelNotFound        404  model_not_found
├── MethodNotAllowed         405  method_not_allowed
├── KeyReused                409  idempotency_key_reused
├── BatchGone                410  batch_deleted
├── BatchRunning             409  batch_running
├── TooLarge                 413  too_large
├── UnsupportedMediaType     415  unsupported_media_type
├── RangeNotSatisfiable      416  range_not_satisfiable
├── CapacityExceeded         429  capacity_exceeded      may be tried again
├── Interrupted              499  upload_interrupted     nobody is left to read it
├── InternalError            500  internal_error
├── NotReady                 503  service_unavailable    may be tried again
└── InsufficientStorage      507  insufficient_storage
Unusable                     a command or a start that cannot go on; says what to change
"""

from __future__ import annotations

from typing import ClassVar


class Refusal(Exception):
    """An API call is not carried out; nothing of it was stored."""

    code: str = "internal_error"
    status: ClassVar[int] = 500
    kind: ClassVar[str] = "server_error"
    do: ClassVar[str] = "Report it with the request id."
    again: ClassVar[bool] = False
    """The same call may succeed later, and client libraries may try it again by themselves."""

    def __init__(self, message: str, *, param: str | None = None, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.retry_after = retry_after


class BadRequest(Refusal):
    code = "invalid_request"
    status = 400
    kind = "invalid_request_error"
    do = "Correct what the message names and send it again."


class InvalidJSON(BadRequest):
    code = "invalid_json"
    do = "Send a body of strict JSON in UTF-8: no NaN, no repeated keys."


class InvalidParameter(BadRequest):
    code = "invalid_parameter"
    do = "Give the field named in `param` a value as the message describes."


class MissingParameter(BadRequest):
    code = "missing_required_parameter"
    do = "Add the field named in `param`."


class UnknownParameter(BadRequest):
    code = "unknown_parameter"
    do = "Leave the field named in `param` out."


class EmptyFile(BadRequest):
    code = "empty_file"
    do = "Upload a file with at least one line."


class FileNotUsable(BadRequest):
    code = "file_not_found"
    do = "Upload the input again with purpose `batch` and use the id of that answer."


class UploadNotPending(BadRequest):
    code = "upload_not_pending"
    do = "Create a new upload: this one was completed or cancelled, or has expired."


class DuplicateBatch(BadRequest):
    code = "duplicate_batch"
    do = "Wait for the batch that the message names, or upload the file again."


class TooManyRequests(BadRequest):
    code = "too_many_requests"
    do = "Split the job into batches of at most as many requests as the message says."


class RequestsRefused(BadRequest):
    """Requests in a create call have problems. The codes are those of a batch's `errors`."""

    code = "invalid_request"
    do = "Correct the requests that the message names and send the call again."

    def __init__(self, code: str, message: str, *, param: str) -> None:
        super().__init__(message, param=param)
        self.code = code


class Forbidden(Refusal):
    code = "forbidden"
    status = 403
    kind = "permission_error"
    do = "Call the server by its loopback address or a configured host name, and not from a web page."


class NotFound(Refusal):
    code = "not_found"
    status = 404
    kind = "invalid_request_error"
    do = "Check the address against the reference."


class FileNotFound(NotFound):
    code = "file_not_found"
    do = "Check the id; deleted files and other owners' files read the same."


class UploadNotFound(NotFound):
    code = "upload_not_found"
    do = "Check the id; other owners' uploads read the same."


class BatchNotFound(NotFound):
    code = "batch_not_found"
    do = "Check the id; deleted batches and other owners' batches read the same."


class ModelNotFound(NotFound):
    code = "model_not_found"
    do = "Use an id that `GET /v1/models` lists."


class MethodNotAllowed(Refusal):
    code = "method_not_allowed"
    status = 405
    kind = "invalid_request_error"
    do = "Use one of the methods that the `Allow` header lists."


class KeyReused(Refusal):
    code = "idempotency_key_reused"
    status = 409
    kind = "invalid_request_error"
    do = "Use a new `Idempotency-Key` for another request."


class BatchGone(Refusal):
    code = "batch_deleted"
    status = 410
    kind = "invalid_request_error"
    do = "Use a new `Idempotency-Key`; the batch that was made with this one has been deleted."


class BatchRunning(Refusal):
    code = "batch_running"
    status = 409
    kind = "invalid_request_error"
    do = "Cancel the batch and wait until nothing of it runs; then delete it."


class TooLarge(Refusal):
    code = "too_large"
    status = 413
    kind = "invalid_request_error"
    do = "Split the job: the message names the limit and the size."


class UnsupportedMediaType(Refusal):
    code = "unsupported_media_type"
    status = 415
    kind = "invalid_request_error"
    do = "Send `application/json`, or `multipart/form-data` for files."


class RangeNotSatisfiable(Refusal):
    code = "range_not_satisfiable"
    status = 416
    kind = "invalid_request_error"
    do = "Ask for a range inside the size that `Content-Range` gives."


class CapacityExceeded(Refusal):
    code = "capacity_exceeded"
    status = 429
    kind = "rate_limit_error"
    do = "Wait as long as `Retry-After` says; the queue is full."
    again = True


class Interrupted(Refusal):
    code = "upload_interrupted"
    status = 499
    kind = "invalid_request_error"
    do = "Upload the file again; nothing of the interrupted upload was kept."


class InternalError(Refusal):
    code = "internal_error"
    do = "Report it with the request id; it may be tried again."
    again = True


class NotReady(Refusal):
    code = "service_unavailable"
    status = 503
    do = "Try again in a moment; `GET /health` says what is missing."
    again = True


class InsufficientStorage(Refusal):
    code = "insufficient_storage"
    status = 507
    do = "Free disk space on the server; nothing was stored."


class Unusable(Exception):
    """A command or a start cannot go on. The message says why and what to change."""


PROBLEMS: dict[str, str] = {
    "invalid_json_line": "The line is not a strict JSON object.",
    "invalid_utf8": "The line is not valid UTF-8.",
    "missing_required_parameter": "The line or its body lacks a field that is required.",
    "invalid_parameter": "A field has a value that is not allowed, or is not known.",
    "duplicate_custom_id": "Another line of the file has the same `custom_id`.",
    "invalid_method": "`method` is not `POST`.",
    "invalid_url": "`url` is not one of the endpoints that batches run.",
    "mismatched_endpoint": "`url` differs from the batch's `endpoint`.",
    "mismatched_model": "The line names another model than the lines before it.",
    "model_not_found": "No server that is connected serves the model.",
    "auto_model_not_allowed": "`auto` models cannot be used in batches; name a model.",
    "streaming_not_supported": "`stream` is true; results of a batch are not streamed.",
    "line_too_long": "The line is longer than the limit.",
    "empty_file": "The file holds no request.",
    "too_many_requests": "The batch holds more requests than one batch may.",
    "batch_route_unavailable": "The model has no route that batches may use.",
    "capacity_exceeded": "The queue filled up while the file was read.",
    "file_not_found": "The input file was deleted or expired before it was read.",
}
"""Code of a batch's `errors` entry → what it means."""

ANSWERS: dict[str, str] = {
    "invalid_request": "The model server rejected the request (400, 422).",
    "context_length_exceeded": "The prompt is longer than the model's context; the message has both numbers.",
    "model_not_found": "The model is gone from its server (404).",
    "forbidden": "The model server refused (401, 403).",
    "rate_limited": "Still rate-limited after the last try (429).",
    "timeout": "Ran out of time; not tried again.",
    "service_unavailable": "No server could take it before the last try (503).",
    "upstream_error": "Another error of the server, or a reply that was no valid JSON.",
    "result_too_large": "The reply was larger than one request may store.",
    "batch_failed": "Not run: the batch failed.",
    "batch_expired": "Not run before the window closed.",
    "batch_cancelled": "Not run: the batch was cancelled.",
}
"""Code of a request's error → what it means."""
