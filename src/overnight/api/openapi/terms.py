"""The words that the document is written in: schemas of values, parameters, bodies, answers, operations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from overnight.api import errors
from overnight.domain.errors import BatchesOff, Forbidden, InternalError, NotReady, Refusal

Schema = dict[str, Any]
JSON = "application/json"
JSONL = "application/jsonl"

_OF_ERRORS = {"retry-after": "RetryAfter", "x-should-retry": "ShouldRetry"}
"""Component that describes a header of errors."""


def ref(name: str, kind: str = "schemas") -> Schema:
    """A component by its name."""
    return {"$ref": f"#/components/{kind}/{name}"}


def text(says: str = "", **more: Any) -> Schema:
    """A string."""
    return _said({"type": "string"} | more, says)


def whole(says: str = "", least: int | None = 0, most: int | None = None, **more: Any) -> Schema:
    """A whole number between bounds that belong to it."""
    bounds = {name: bound for name, bound in (("minimum", least), ("maximum", most)) if bound is not None}
    return _said({"type": "integer"} | bounds | more, says)


def number(says: str = "", least: float = 0, most: float | None = None) -> Schema:
    """A number between bounds that belong to it."""
    return _said({"type": "number", "minimum": least} | ({} if most is None else {"maximum": most}), says)


def yes_or_no(says: str = "") -> Schema:
    """`true` or `false`."""
    return _said({"type": "boolean"}, says)


def always(value: Any, says: str = "") -> Schema:
    """One value and no other."""
    return _said({"const": value}, says)


def one_of(values: Iterable[str], says: str = "") -> Schema:
    """One of some strings."""
    return _said({"type": "string", "enum": list(values)}, says)


def moment(says: str) -> Schema:
    """A time."""
    return whole(f"{says} Unix seconds.")


def public_id(prefix: str, says: str = "") -> Schema:
    """An id as it is shown."""
    return text(says, pattern=f"^{prefix}[0-9a-f]{{32}}$")


def array(of: Schema, says: str = "", **more: Any) -> Schema:
    """An array of one kind of values."""
    return _said({"type": "array", "items": of} | more, says)


def record(fields: Mapping[str, Schema], says: str = "", optional: Iterable[str] = ()) -> Schema:
    """An object of an answer: it has all fields but the optional ones always; later versions may add some."""
    left_out = set(optional)
    needs = [name for name in fields if name not in left_out]
    return _said({"type": "object", "properties": dict(fields), "required": needs}, says)


def asked(fields: Mapping[str, Schema], needs: Iterable[str] = (), says: str = "") -> Schema:
    """An object of a call: what is not needed may be left out, and nothing else may be there."""
    return _said(
        {"type": "object", "properties": dict(fields), "required": list(needs), "additionalProperties": False}, says
    )


def nullable(schema: Schema) -> Schema:
    """A value or null."""
    kind = schema.get("type")
    if isinstance(kind, str) and "enum" not in schema:
        return schema | {"type": [kind, "null"]}
    says = schema.get("description", "")
    bare = {name: value for name, value in schema.items() if name != "description"}
    return _said({"anyOf": [bare, {"type": "null"}]}, says)


def parameter(name: str, schema: Schema, says: str, where: str = "query", **more: Any) -> Schema:
    """A parameter of an operation; one in a path is required."""
    required = {"required": True} if where == "path" else {}
    return {"name": name, "in": where, "description": says, "schema": schema} | required | more


def answer(says: str, content: Mapping[str, Schema], headers: Mapping[str, Schema] | None = None) -> Schema:
    """An answer: its bodies by media type, and headers beside those that every answer has."""
    shown = {"x-request-id": ref("RequestId", "headers"), **(headers or {})}
    bodies = {kind: {"schema": schema} for kind, schema in content.items()}
    return {"description": says, "headers": shown} | ({"content": bodies} if bodies else {})


def header(schema: Schema, says: str, *, required: bool = False) -> Schema:
    """A header of an answer."""
    return {"description": says, "schema": schema, "required": required}


def error_answer(kinds: Iterable[type[Refusal]], codes: Iterable[str] = ()) -> Schema:
    """The answer of one status that refusals of these kinds give, with further codes that it may have."""
    found = list(kinds)
    told = {kind.code: kind.do for kind in found}
    all_codes = sorted({*told, *codes})
    says = " ".join(f"`{code}`: {told[code]}" for code in all_codes if code in told)
    if set(all_codes) - set(told):
        says += " Or the code of the first problem of a request."
    given = {name for kind in found for name in errors.show(kind("")).headers}
    headers = {name: ref(component, "headers") for name, component in _OF_ERRORS.items() if name in given}
    only = {"properties": {"error": {"properties": {"code": {"enum": all_codes}}}}}
    return answer(says, {JSON: {"allOf": [ref("Error"), only]}}, headers)


@dataclass(frozen=True, slots=True)
class Operation:
    """What a call of one method and path takes and answers; summary and name come from its handler."""

    tag: str
    answers: Mapping[int, Schema] | Mapping[int | str, Schema]
    """By status; `4XX` stands for all others of its kind."""
    refusals: tuple[type[Refusal], ...] = ()
    """Beside those that every operation may answer with."""
    codes: tuple[str, ...] = ()
    """Further codes of a 400."""
    parameters: tuple[Schema, ...] = ()
    body: Mapping[str, Schema] | None = None
    """By media type."""
    says: str = ""
    is_open: bool = False
    """Whether it asks for no key, wherever it runs."""
    example: Mapping[str, Any] | None = None
    more: Mapping[str, Any] = field(default_factory=dict)
    """Further members of the body's first media type."""


ALWAYS: tuple[type[Refusal], ...] = (Forbidden, InternalError, NotReady)
"""What any call may be answered with."""


def show(operation: Operation, name: str, summary: str, *, has_body: bool = True) -> Schema:
    """The operation as the document has it; for HEAD answers have no body."""
    answers = {str(status): found for status, found in operation.answers.items()}
    for status, found in _refused(operation).items():
        answers.setdefault(status, found)
    if not has_body:
        # A range is for GET alone.
        answers = {status: _without_body(found) for status, found in answers.items() if status != "206"}
    shown: Schema = {"operationId": name, "tags": [operation.tag], "summary": summary}
    if operation.says:
        shown["description"] = operation.says
    if operation.is_open:
        shown["security"] = []
    shown["parameters"] = [*operation.parameters, ref("RequestId", "parameters")]
    if operation.body is not None:
        content = {kind: {"schema": schema} | dict(operation.more) for kind, schema in operation.body.items()}
        if operation.example is not None:
            next(iter(content.values()))["example"] = operation.example
        shown["requestBody"] = {"required": True, "content": content}
    return shown | {"responses": dict(sorted(answers.items()))}


def _refused(operation: Operation) -> dict[str, Schema]:
    found: dict[int, list[type[Refusal]]] = {}
    turned_off = (BatchesOff,) if operation.tag in ("batches", "results", "files", "uploads") else ()
    for kind in (*operation.refusals, *turned_off):
        found.setdefault(kind.status, []).append(kind)
    shown = {}
    for status, kinds in found.items():
        shown[str(status)] = error_answer(kinds, operation.codes if status == 400 else ())
    return shown | {str(kind.status): ref(kind.__name__, "responses") for kind in ALWAYS if kind.status not in found}


def _without_body(found: Schema) -> Schema:
    if "$ref" in found:
        return ref(found["$ref"].rpartition("/")[2] + "ToHead", "responses")
    return {name: value for name, value in found.items() if name != "content"}


def _said(schema: Schema, says: str) -> Schema:
    return schema | {"description": says} if says else schema
