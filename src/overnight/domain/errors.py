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
│   ├── ModelNotFound        404  model_not_found
│   └── BatchesOff           404  batch_inference_off
├── MethodNotAllowed         405  method_not_allowed
├── KeyReused                409  idempotency_key_reused
├── BatchGone                410  batch_deleted
├── BatchRunning             409  batch_running
├── TooLarge                 413  too_large
├── UnsupportedMediaType     415  unsupported_media_type
├── RangeNotSatisfiable      416  range_not_satisfiable
├── CapacityExceeded         429  capacity_exceeded      may be tried again
├── TooManyBatches           429  active_batch_limit     may be tried again
├── TooManyQueued            429  queued_request_limit   may be tried again, unless it can never fit
├── TooManyUploads           429  upload_limit           may be tried again, if that helps within a minute
├── NoRoomForFile            429  file_storage_limit
├── Interrupted              499  upload_interrupted     nobody is left to read it
├── InternalError            500  internal_error
├── NotReady                 503  service_unavailable    may be tried again
└── InsufficientStorage      507  insufficient_storage
Unusable                     a command or a start that cannot go on; says what to change
└── InputRefused             an input file of a command holds nothing that could run
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar


class Refusal(Exception):
    """An API call is not carried out; nothing of it was stored."""

    code: str = "internal_error"
    status: ClassVar[int] = 500
    kind: ClassVar[str] = "server_error"
    do: ClassVar[str] = "Report it with the request id."
    again: bool = False
    """The same call may succeed later, and client libraries may try it again by themselves."""

    def __init__(
        self, message: str, *, param: str | None = None, retry_after: int | None = None, again: bool | None = None
    ) -> None:
        super().__init__(message)
        if again is not None:
            self.again = again
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
    """Requests in a create call have problems. The codes are those of a batch's `errors`.

    The answer has all of them in `problems`, in the shape of `errors`.
    """

    code = "invalid_request"
    do = "Correct the requests that `problems` lists and send the call again."

    def __init__(self, code: str, message: str, *, param: str, problems: Sequence[dict[str, Any]] = ()) -> None:
        super().__init__(message, param=param)
        self.code = code
        self.problems = list(problems)


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


class BatchesOff(NotFound):
    code = "batch_inference_off"
    do = "Ask the operator, who turned batches off with the setting `BATCH_ENABLED`; what was stored is kept."


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


class TooManyBatches(Refusal):
    code = "active_batch_limit"
    status = 429
    kind = "rate_limit_error"
    do = "Wait until one of your unfinished batches has ended, or cancel one."
    again = True


class TooManyQueued(Refusal):
    code = "queued_request_limit"
    status = 429
    kind = "rate_limit_error"
    do = "Wait until more of your requests are answered, or create a smaller batch."
    again = True


class TooManyUploads(Refusal):
    code = "upload_limit"
    status = 429
    kind = "rate_limit_error"
    do = "Wait as long as the message says, and put more requests into each file."
    again = True


class NoRoomForFile(Refusal):
    code = "file_storage_limit"
    status = 429
    kind = "rate_limit_error"
    do = "Delete input files that you need no more, or upload a smaller one."


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


class InputRefused(Unusable):
    """An input file of a command holds no request, or none that could run."""
