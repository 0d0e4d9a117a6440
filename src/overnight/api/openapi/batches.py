"""What is said of /v1/batches and everything below it."""

from __future__ import annotations

from typing import Any

from overnight.api import batches as handlers
from overnight.api import results
from overnight.api.openapi.shared import BATCH_ID, RANGES, downloads, page_parameters, shows
from overnight.api.openapi.terms import JSON, JSONL, Operation, answer, array, one_of, parameter, ref, text, whole
from overnight.batches.find import LATEST, LONGEST_SEARCH
from overnight.domain import ids
from overnight.domain.codes import PROBLEMS
from overnight.domain.errors import (
    BadRequest,
    BatchGone,
    BatchNotFound,
    BatchRunning,
    CapacityExceeded,
    DuplicateBatch,
    FileNotFound,
    FileNotUsable,
    InsufficientStorage,
    Interrupted,
    InvalidJSON,
    InvalidParameter,
    KeyReused,
    MissingParameter,
    RangeNotSatisfiable,
    Refusal,
    TooLarge,
    TooManyBatches,
    TooManyQueued,
    TooManyRequests,
    UnknownParameter,
    UnsupportedMediaType,
)
from overnight.domain.states import Status
from overnight.domain.targets import TARGETS

_EXAMPLE: dict[str, Any] = {
    "requests": [{"custom_id": "q-1", "body": {"model": "a-model", "messages": [{"role": "user", "content": "Hello"}]}}]
}

_JSONL_HEADERS = {"content-disposition": ref("Disposition", "headers")}

_STARTS: tuple[type[Refusal], ...] = (
    InvalidParameter,
    FileNotUsable,
    DuplicateBatch,
    TooManyRequests,
    CapacityExceeded,
    TooManyBatches,
    TooManyQueued,
    InsufficientStorage,
)

_CREATE = Operation(
    "batches",
    shows("Batch", "The batch: `validating`, or the one that the key made before as it is now."),
    (
        BadRequest,
        InvalidJSON,
        MissingParameter,
        UnknownParameter,
        *_STARTS,
        KeyReused,
        BatchGone,
        TooLarge,
        UnsupportedMediaType,
        Interrupted,
    ),
    codes=tuple(PROBLEMS),
    parameters=(
        parameter(
            "idempotency-key",
            text(pattern="^[!-~]{1,255}$"),
            "The same call under the same key gives the batch that it made before.",
            "header",
        ),
    ),
    body={JSON: {"oneOf": [ref("NewBatchFromFile"), ref("NewBatchOfRequests")]}},
    example=_EXAMPLE,
    says="Made of a file, which is checked in the background: the batch starts or becomes `failed` with all problems; "
    "or of requests in the call, all of which are checked before it answers. These headers are refused: "
    + ", ".join(f"`{name}`" for name in handlers.NOT_TAKEN)
    + ".",
)

_SECONDS = whole("Unix seconds.", 0, LATEST)

_LIST = Operation(
    "batches",
    shows("BatchPage", "A page of batches, newest first."),
    (InvalidParameter,),
    parameters=(
        *page_parameters(handlers.PAGE, handlers.LONGEST_PAGE, ids.BATCH, "batches"),
        parameter("status", array(one_of(Status)), "Only batches in one of these states.", explode=True),
        parameter(
            "q",
            text(maxLength=LONGEST_SEARCH, pattern="^[^\\u0000]*$"),
            "Only batches whose id begins so, or a value of whose metadata holds it.",
        ),
        parameter("endpoint", one_of(TARGETS), "Only batches for this endpoint."),
        parameter(
            "model",
            text(maxLength=LONGEST_SEARCH, pattern="^[^\\u0000]*$"),
            "Only batches that one model serves, this one by its canonical name.",
        ),
        parameter("created_after", _SECONDS, "Only batches whose `created_at` is larger."),
        parameter("created_before", _SECONDS, "Only batches whose `created_at` is smaller."),
    ),
)


def _verb(answered: str, says: str = "", refusals: tuple[type[Refusal], ...] = (InvalidParameter,)) -> Operation:
    return Operation("batches", shows("Batch", answered), (BatchNotFound, *refusals), parameters=(BATCH_ID,), says=says)


OPERATIONS: dict[str, Operation] = {
    "create_batch": _CREATE,
    "list_batches": _LIST,
    "show_batch": _verb("The batch.", refusals=()),
    "cancel_batch": _verb("The batch; one that has ended is unchanged.", refusals=()),
    "pause_batch": _verb("The batch, paused.", "What runs finishes, and the window goes on."),
    "resume_batch": _verb("The batch, going on."),
    "retry_batch": _verb("The new batch.", "Only of a batch that has ended.", _STARTS),
    "delete_batch": Operation(
        "batches", shows("BatchDeleted", "It is gone."), (BatchNotFound, BatchRunning), parameters=(BATCH_ID,)
    ),
    "list_results": Operation(
        "results",
        shows("ResultPage", "A page of results in the order of submission; it also ends near 8 MiB."),
        (BatchNotFound, InvalidParameter),
        parameters=(
            BATCH_ID,
            *page_parameters(results.PAGE, results.LONGEST_PAGE, ids.REQUEST_IN_BATCH, "results"),
        ),
    ),
    "show_output": Operation(
        "results",
        downloads(
            "Lines of /schemas/batch-output-line.json. In the order of submission there are no ranges and no `etag`.",
            {"x-incomplete": ref("Incomplete", "headers"), "x-last-line": ref("LastLine", "headers")},
        ),
        (BatchNotFound, InvalidParameter, RangeNotSatisfiable),
        parameters=(
            BATCH_ID,
            parameter(
                "order",
                one_of(("finished", "submitted")) | {"default": "finished"},
                "Responses as they finished, or responses and errors as they were submitted, once the batch has ended.",
            ),
            parameter("offset", whole("", 0, results.MOST_SKIPPED) | {"default": 0}, "How many lines to skip."),
            *RANGES,
        ),
    ),
    "show_unfinished": Operation(
        "results",
        {200: answer("Lines of /schemas/batch-input-line.json.", {JSONL: text()}, _JSONL_HEADERS)},
        (BatchNotFound, FileNotFound),
        parameters=(BATCH_ID,),
    ),
}
