"""What is said of /v1/files and /v1/uploads."""

from __future__ import annotations

from overnight.api.files import LONGEST_PAGE
from overnight.api.openapi.objects import PURPOSES
from overnight.api.openapi.shared import FILE_ID, RANGES, UPLOAD_ID, downloads, page_parameters, shows
from overnight.api.openapi.terms import (
    JSON,
    Operation,
    Schema,
    always,
    array,
    asked,
    nullable,
    one_of,
    parameter,
    text,
    whole,
)
from overnight.domain import ids
from overnight.domain.errors import (
    BadRequest,
    EmptyFile,
    FileNotFound,
    InsufficientStorage,
    Interrupted,
    InvalidJSON,
    InvalidParameter,
    MissingParameter,
    NoRoomForFile,
    RangeNotSatisfiable,
    Refusal,
    TooLarge,
    TooManyUploads,
    UnknownParameter,
    UnsupportedMediaType,
    UploadNotFound,
    UploadNotPending,
)
from overnight.domain.fields import KEPT_SECONDS
from overnight.domain.limits import MOST_PARTS, PART_BYTES
from overnight.files.uploads.request import LARGEST, LONGEST_TEXT

_FORM = "multipart/form-data"
_BYTES = text(format="binary")
_SECONDS = whole("", KEPT_SECONDS[0], KEPT_SECONDS[-1])
_AS_IT_COMES: tuple[type[Refusal], ...] = (
    BadRequest,
    InvalidParameter,
    MissingParameter,
    TooLarge,
    UnsupportedMediaType,
    Interrupted,
    InsufficientStorage,
)
_JSON_CALL: tuple[type[Refusal], ...] = (InvalidJSON, UnknownParameter, *_AS_IT_COMES)


def _form(fields: dict[str, Schema], needs: tuple[str, ...]) -> Schema:
    return {"type": "object", "properties": fields, "required": list(needs)}


_UPLOAD_FORM = _form(
    {
        "file": _BYTES | {"description": "JSONL, one request a line: /schemas/batch-input-line.json."},
        "purpose": always("batch"),
        "expires_after[anchor]": always("created_at", "Needed with the seconds."),
        "expires_after[seconds]": _SECONDS | {"description": "How long the file is kept."},
    },
    needs=("file", "purpose"),
) | {"dependentRequired": {"expires_after[anchor]": ["expires_after[seconds]"]}}
_UPLOAD_FORM["dependentRequired"]["expires_after[seconds]"] = ["expires_after[anchor]"]

_NEW_UPLOAD = asked(
    {
        "bytes": whole("Size of the whole file.", 1, LARGEST),
        "filename": text(maxLength=LONGEST_TEXT),
        "mime_type": text("Whatever it says, the file is read as lines of JSON.", maxLength=LONGEST_TEXT),
        "purpose": always("batch"),
        "expires_after": nullable(
            asked({"anchor": always("created_at"), "seconds": _SECONDS}, ("anchor", "seconds"), "How long it is kept.")
        ),
    },
    needs=("bytes", "filename", "mime_type", "purpose"),
)

_COMPLETION = asked(
    {
        "part_ids": array(
            text(), "Ids of parts, in the order of the file.", minItems=1, maxItems=MOST_PARTS, uniqueItems=True
        ),
        "md5": nullable(text("Of the whole file.", pattern="^[0-9a-fA-F]{32}$")),
    },
    needs=("part_ids",),
)

OPERATIONS: dict[str, Operation] = {
    "upload": Operation(
        "files",
        shows("File", "The file, with what is wrong with it."),
        (EmptyFile, TooManyUploads, NoRoomForFile, *_AS_IT_COMES),
        body={_FORM: _UPLOAD_FORM},
        more={"encoding": {"file": {"contentType": "application/jsonl"}}},
        says="The file is checked while it streams in. Problems don't refuse it: they are in `problems`, and a batch "
        "of it would be refused with all of them. Fields that are not known are ignored.",
    ),
    "list_files": Operation(
        "files",
        shows("FilePage", "A page of files."),
        (InvalidParameter,),
        parameters=(
            parameter("purpose", text(examples=list(PURPOSES)), "Only files of this purpose."),
            parameter("order", one_of(("asc", "desc")) | {"default": "desc"}, "By time of creation."),
            *page_parameters(LONGEST_PAGE, LONGEST_PAGE, ids.FILE, "files"),
        ),
    ),
    "show_file": Operation("files", shows("File", "The file."), (FileNotFound,), parameters=(FILE_ID,)),
    "delete_file": Operation(
        "files",
        shows("FileDeleted", "It is gone."),
        (FileNotFound,),
        parameters=(FILE_ID,),
        says="A batch that was made of it goes on.",
    ),
    "show_content": Operation(
        "files",
        downloads("The bytes.", {}),
        (FileNotFound, RangeNotSatisfiable),
        parameters=(FILE_ID, *RANGES),
    ),
    "create_upload": Operation(
        "uploads",
        shows("Upload", "The upload; it waits for its parts."),
        (EmptyFile, TooManyUploads, NoRoomForFile, *_JSON_CALL),
        body={JSON: _NEW_UPLOAD},
        example={"bytes": 1_000_000, "filename": "a.jsonl", "mime_type": "application/jsonl", "purpose": "batch"},
    ),
    "show_upload": Operation("uploads", shows("Upload", "It."), (UploadNotFound,), parameters=(UPLOAD_ID,)),
    "add_part": Operation(
        "uploads",
        shows("UploadPart", "The part."),
        (UploadNotFound, UploadNotPending, *_AS_IT_COMES),
        parameters=(UPLOAD_ID,),
        body={_FORM: _form({"data": _BYTES}, needs=("data",))},
        says=f"A part may have {PART_BYTES:,} bytes. Parts may come in any order and at once.",
    ),
    "complete_upload": Operation(
        "uploads",
        shows("Upload", "The upload, with its file."),
        (UploadNotFound, UploadNotPending, EmptyFile, *_JSON_CALL),
        parameters=(UPLOAD_ID,),
        body={JSON: _COMPLETION},
        says="One that was completed is returned as it is.",
    ),
    "cancel_upload": Operation(
        "uploads",
        shows("Upload", "The upload; its parts are gone."),
        (UploadNotFound, UploadNotPending),
        parameters=(UPLOAD_ID,),
    ),
}
