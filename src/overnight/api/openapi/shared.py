"""Parameters, headers and answers that several operations share."""

from __future__ import annotations

from collections.abc import Mapping

from overnight.api.errors import LONGEST_RETRY_AFTER
from overnight.api.openapi.terms import (
    ALWAYS,
    JSON,
    JSONL,
    Schema,
    answer,
    error_answer,
    header,
    parameter,
    public_id,
    ref,
    text,
    whole,
)
from overnight.domain import ids

HEADERS = {
    "RequestId": header(
        text(minLength=1, maxLength=128),
        "Names the call: the caller's own `x-request-id` where it was 1 to 128 visible ASCII characters, else a new "
        "one. Give it when reporting a fault.",
        required=True,
    ),
    "RetryAfter": header(
        whole("", 1, LONGEST_RETRY_AFTER), "The call may succeed after so many seconds; client libraries wait for it."
    ),
    "ShouldRetry": header(
        text(enum=["false"]), "The refusal stays one: client libraries that would try again by themselves don't."
    ),
    "Disposition": header(text(), "`attachment`, with a name to save it under (RFC 6266).", required=True),
    "ETag": header(text(), "The strong validator of the bytes; ranges fit together where it is the same."),
    "AcceptRanges": header(text(enum=["bytes"]), "Ranges of bytes can be asked for."),
    "ContentRange": header(text(), "Which bytes of how many these are.", required=True),
    "Incomplete": header(text(enum=["true"]), "The batch has not ended: more may come."),
    "LastLine": header(whole(), "Lines there are so far: who goes on later gives this as `offset`."),
}

PARAMETERS = {
    "RequestId": parameter("x-request-id", text(), "A name for this call, which its answer repeats.", "header"),
    "FileId": parameter("file_id", public_id(ids.FILE), "The id of a file.", "path"),
    "BatchId": parameter("batch_id", public_id(ids.BATCH), "The id of a batch.", "path"),
    "UploadId": parameter("upload_id", public_id(ids.UPLOAD), "The id of an upload.", "path"),
    "Range": parameter("range", text(), "One range of bytes (RFC 9110); what is malformed is ignored.", "header"),
    "IfRange": parameter("if-range", text(), "An `ETag`: a range is sent only where it still fits.", "header"),
    "IfNoneMatch": parameter("if-none-match", text(), "`ETag`s of what the caller has already.", "header"),
}

FILE_ID, BATCH_ID, UPLOAD_ID = (ref(name, "parameters") for name in ("FileId", "BatchId", "UploadId"))
RANGES = tuple(ref(name, "parameters") for name in ("Range", "IfRange", "IfNoneMatch"))

RESPONSES = {kind.__name__: error_answer([kind]) for kind in ALWAYS}
RESPONSES |= {
    f"{name}ToHead": {member: value for member, value in found.items() if member != "content"}
    for name, found in RESPONSES.items()
}


def page_parameters(limit: int, longest: int, prefix: str, of: str) -> tuple[Schema, ...]:
    """`limit` and `after` of a list."""
    return (
        parameter("limit", whole("", 1, longest) | {"default": limit}, f"How many {of} a page holds at most."),
        parameter("after", public_id(prefix), "The id before the page: the `last_id` of the page before."),
    )


def shows(name: str, says: str) -> Mapping[int, Schema]:
    """The answers of a call that shows one object."""
    return {200: answer(says, {JSON: ref(name)})}


def downloads(says: str, more: Mapping[str, Schema]) -> Mapping[int, Schema]:
    """The answers of a download of JSONL that ranges can be asked of, but those that are errors."""
    lines = {JSONL: text()}
    headers = {
        "etag": ref("ETag", "headers"),
        "accept-ranges": ref("AcceptRanges", "headers"),
        "content-disposition": ref("Disposition", "headers"),
        **more,
    }
    return {
        200: answer(says, lines, headers),
        206: answer(
            "The range that was asked for.", lines, {**headers, "content-range": ref("ContentRange", "headers")}
        ),
        304: answer("The caller has these bytes.", {}, headers),
    }
