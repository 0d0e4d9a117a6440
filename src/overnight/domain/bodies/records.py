"""Objects whose fields are known: each field has a kind, and no other is let through."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from overnight.domain.bodies.kinds import LONGEST_NAME_SHOWN, Kind, Schema, Wrong, below, is_wrong, only_names

_NO_OBJECT = is_wrong("an object")


def record(fields: Mapping[str, Kind], needs: tuple[str, ...] = (), one_of: tuple[str, ...] = ()) -> Kind:
    """An object with these fields only.

    It must have those in `needs`, and one of those in `one_of` that is not null.
    """
    find = {name: kind.check for name, kind in fields.items()}.get
    needed = frozenset(needs)

    def check(value: Any) -> Wrong | None:
        if type(value) is not dict:
            return _NO_OBJECT
        for name, member in value.items():
            look = find(name)
            if look is None:
                return unknown(name)
            found = look(member)
            if found is not None:
                return below(name, found)
        if not needed <= value.keys():
            return Wrong("." + next(name for name in needs if name not in value), "is missing")
        if one_of and all(value.get(name) is None for name in one_of):
            return Wrong("." + one_of[0], "is missing")
        return None

    schema: Schema = {"type": "object"} | only_names(fields)
    if needs:
        schema["required"] = list(needs)
    if one_of:
        schema["anyOf"] = [{"required": [name], "properties": {name: {"not": {"type": "null"}}}} for name in one_of]
    return Kind(check, schema, "an object", (dict,))


def tagged(tag: str, variants: Mapping[str, Kind]) -> Kind:
    """An object of one of some forms; the field `tag` of each says which it is."""
    find = {name: kind.check for name, kind in variants.items()}.get
    unknown_tag = Wrong(f".{tag}", f"must be one of {', '.join(map(repr, variants))}")

    def check(value: Any) -> Wrong | None:
        if type(value) is not dict:
            return _NO_OBJECT
        name = value.get(tag)
        look = find(name) if type(name) is str else None
        return unknown_tag if look is None else look(value)

    return Kind(check, {"oneOf": [kind.schema for kind in variants.values()]}, "an object", (dict,))


def body(fields: Mapping[str, Kind], needs: tuple[str, ...]) -> Kind:
    """A request's body: a record in which null is as good as nothing, as model servers have it.

    What it `needs` must not be null; that is looked at elsewhere, with its own codes.
    """
    find = {name: kind.check for name, kind in fields.items()}.get

    def check(value: Any) -> Wrong | None:
        for name, member in value.items():
            look = find(name)
            if look is None:
                return unknown(name)
            if member is not None:
                found = look(member)
                if found is not None:
                    return below(name, found)
        return None

    schemas = {name: kind.schema if name in needs else _or_null(kind) for name, kind in fields.items()}
    schema: Schema = {"type": "object", "properties": schemas, "additionalProperties": False, "required": list(needs)}
    return Kind(check, schema, "an object", (dict,))


def unknown(name: str) -> Wrong:
    """The refusal of a field that no table names."""
    return Wrong("." + name[:LONGEST_NAME_SHOWN], "is not a known field")


def _or_null(kind: Kind) -> Schema:
    schema = kind.schema
    if type(None) in kind.takes or schema == {}:
        return schema
    if isinstance(schema.get("type"), str):
        return schema | {"type": [schema["type"], "null"]}
    if "anyOf" in schema and len(schema) == 1:
        return {"anyOf": [*schema["anyOf"], {"type": "null"}]}
    if "enum" in schema:
        return {"enum": [*schema["enum"], None]}
    return {"type": "null"} if schema == {"not": {}} else {"anyOf": [schema, {"type": "null"}]}
