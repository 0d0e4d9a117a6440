"""JSON Schemas (2020-12) of the lines of input and result files, made from the tables that check bodies."""

from __future__ import annotations

from overnight.domain.bodies import BODIES
from overnight.domain.bodies.kinds import Kind, Schema, anything, choice, integer, nullable, own_object, pattern, text
from overnight.domain.bodies.records import record
from overnight.domain.limits import LONGEST_CUSTOM_ID
from overnight.domain.targets import TARGETS

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_CUSTOM_ID = text(1, LONGEST_CUSTOM_ID)


def _document(title: str, description: str, kind: Kind, **more: object) -> Schema:
    return {"$schema": _DIALECT, "title": title, "description": description} | kind.schema | more


def _input_line() -> Schema:
    fields = {"custom_id": _CUSTOM_ID, "method": choice("POST"), "url": choice(*TARGETS), "body": own_object()}
    bodies = [
        {"if": {"properties": {"url": {"const": url}}}, "then": {"properties": {"body": kind.schema}}}
        for url, kind in BODIES.items()
    ]
    return _document(
        "A line of a batch's input file",
        "One request. Besides, a line is strict JSON: no key twice in an object, only finite numbers, arrays and "
        "objects at most 128 deep; and every custom_id of a file is another one.",
        record(fields, needs=tuple(fields)),
        allOf=bodies,
    )


def _output_line() -> Schema:
    response = record(
        {"status_code": integer(100, 599), "request_id": text(), "body": anything()},
        needs=("status_code", "request_id", "body"),
    )
    error = record(
        {"code": text(1), "message": text(), "status": integer(100, 599), "body": anything()},
        needs=("code", "message"),
    )
    fields = {
        "id": pattern("batch_req_[0-9a-f]{32}", "the id of a request"),
        "custom_id": _CUSTOM_ID,
        "response": nullable(response),
        "error": nullable(error),
    }
    none = {"type": "null"}
    return _document(
        "A line of a batch's result files",
        "What became of one request: the response of its model, or an error with the upstream's own status and body "
        "where it said any.",
        record(fields, needs=tuple(fields)),
        oneOf=[{"properties": {"response": none}}, {"properties": {"error": none}}],
    )


LINE_SCHEMAS: dict[str, Schema] = {
    "batch-input-line.json": _input_line(),
    "batch-output-line.json": _output_line(),
}
"""By the name under which each is published."""
