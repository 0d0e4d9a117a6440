"""The objects of answers that are about files, uploads, models and the process, and the shape of errors."""

from __future__ import annotations

from overnight.api.openapi.terms import (
    Schema,
    always,
    array,
    moment,
    nullable,
    number,
    one_of,
    public_id,
    record,
    ref,
    text,
    whole,
    yes_or_no,
)
from overnight.domain import ids, waiting
from overnight.domain.codes import PROBLEMS
from overnight.domain.limits import PROBLEMS_SHOWN_ON_FILE
from overnight.domain.targets import TARGETS

PURPOSES = ("batch", "batch_output")
UPLOAD_STATES = ("pending", "completed", "cancelled", "expired")


def page_of(name: str, of: str) -> Schema:
    """A page of a list of objects with ids."""
    return record(
        {
            "object": always("list"),
            "data": array(ref(name)),
            "first_id": nullable(text("The id of the first one; null where the page is empty.")),
            "last_id": nullable(text("Ask for the next page with `after` = this.")),
            "has_more": yes_or_no("Whether another page has any."),
        },
        f"A page of {of}.",
    )


_ERROR = record(
    {
        "error": record(
            {
                "message": text("A sentence that says what to do.", minLength=1),
                "type": text("The family of errors, as client libraries know them."),
                "param": nullable(text("The field that it is about.")),
                "code": text("Which error it is; docs/reference/errors.md lists them."),
                "problems": array(ref("Problem"), "Of requests in a create call: all that is wrong, 1,000 at most."),
            },
            optional=("problems",),
        )
    },
    "The shape of every error, whatever went wrong.",
)

_PROBLEM = record(
    {
        "code": one_of(PROBLEMS),
        "line": nullable(whole("Counted from 1; null where it is about the whole file.", least=1)),
        "message": text("A sentence that says what is wrong."),
        "param": nullable(text("The field that it is about.")),
    },
    "One thing wrong with an input.",
)

_FILE = record(
    {
        "id": public_id(ids.FILE),
        "object": always("file"),
        "bytes": whole("Size."),
        "created_at": moment("When it was stored."),
        "expires_at": nullable(moment("When it will be deleted.")),
        "filename": text(minLength=1),
        "purpose": one_of(PURPOSES, "An input, or the results of a batch."),
        "status": always("processed"),
        "status_details": {"type": "null"},
        "sha256": text("Of its bytes.", pattern="^[0-9a-f]{64}$"),
        "lines": whole("Requests or results: lines that are not blank."),
        "problems": nullable(
            record(
                {
                    "count": whole(least=1),
                    "first": array(ref("Problem"), maxItems=PROBLEMS_SHOWN_ON_FILE),
                },
                "What is wrong with an input: a batch of it would be refused at once.",
            )
        ),
    },
    "A stored file.",
)

_UPLOAD = record(
    {
        "id": public_id(ids.UPLOAD),
        "object": always("upload"),
        "bytes": whole("Size that the whole file was announced with.", least=1),
        "created_at": moment("When it was begun."),
        "expires_at": moment("When it is given up if it was not completed."),
        "filename": text(minLength=1),
        "purpose": always("batch"),
        "status": one_of(UPLOAD_STATES),
        "file": nullable(ref("File")),
    },
    "A file that is sent in parts.",
)

_PART = record(
    {
        "id": public_id(ids.PART),
        "object": always("upload.part"),
        "created_at": moment("When it was stored."),
        "upload_id": public_id(ids.UPLOAD),
    },
    "Some bytes of an upload.",
)

_MODEL = record(
    {
        "id": text(minLength=1),
        "object": always("model"),
        "created": moment("Since when it is served."),
        "owned_by": always("overnight"),
        "aliases": array(text(), "Other names of it."),
        "context_length": nullable(whole("Tokens; null where no server says it.")),
        "waiting_for": nullable(
            one_of(waiting.SAYS, "Why no request to it can start now, as in a batch's progress; null where one can.")
        ),
        "targets": array(one_of(sorted(target.name for target in TARGETS.values())), "What it can be asked for."),
    },
    "A model that batches may name.",
)

_POOL = record(
    {
        "intake_pool_size": whole("Requests accepted and not yet running."),
        "intake_pool_capacity": whole("The most requests that may be accepted and not yet running."),
        "scheduling_pool_active": whole("Requests running."),
        "scheduling_pool_free": whole("Requests that could run besides."),
        "scheduling_pool_capacity": whole("The most requests that may run at once."),
        "active_batches": whole("Batches that have not ended."),
        "pool_mode": always(True),
        "oldest_waiting_seconds": nullable(
            number("Since the batch of the oldest request that waits was created; null where none waits.")
        ),
    },
    "How full the whole deployment is.",
)


def _deleted(prefix: str, kind: str) -> Schema:
    return record({"id": public_id(prefix), "object": always(kind), "deleted": always(True)})


OBJECTS: dict[str, Schema] = {
    "Error": _ERROR,
    "Problem": _PROBLEM,
    "File": _FILE,
    "FilePage": page_of("File", "files"),
    "FileDeleted": _deleted(ids.FILE, "file"),
    "BatchDeleted": _deleted(ids.BATCH, "batch.deleted"),
    "Upload": _UPLOAD,
    "UploadPart": _PART,
    "Model": _MODEL,
    "ModelList": record({"object": always("list"), "data": array(ref("Model"))}, "Every model that is served."),
    "PoolStatus": _POOL,
    "Healthy": record({"status": always("healthy")}),
    "Unhealthy": record({"status": always("unhealthy"), "reason": text("What is missing.", minLength=1)}),
}
