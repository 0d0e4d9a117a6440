"""Holds what came over the wire against the types of the official SDK, strictly: the SDK itself takes anything."""

from __future__ import annotations

from typing import Any, TypeVar

from openai.types import Model
from openai.types.shared import ErrorObject
from pydantic import BaseModel, TypeAdapter

T = TypeVar("T", bound=BaseModel)

FOREIGN = {(ErrorObject, "misalignment"), (Model, "shutdown_date")}
"""What only OpenAI's own models have: how a refusal of theirs came about, and when one will be withdrawn."""


def strictly(kind: type[T], text: bytes, *, whole: bool = True) -> T:
    """Read JSON as an object of the SDK.

    Raises ValidationError where a value is not of its declared type. Where `whole`, every declared field has to be
    there, also those that may be null.
    """
    found = TypeAdapter(kind).validate_json(text, strict=True)
    if whole:
        assert absent(found) == []
    return found


def absent(value: Any, place: str = "") -> list[str]:
    """The declared fields that were left out, in this object and in all below it."""
    if isinstance(value, BaseModel):
        kind, given = type(value), value.model_fields_set
        left_out = [
            f"{place}.{name}" for name in kind.model_fields if name not in given and (kind, name) not in FOREIGN
        ]
        return left_out + [hole for name in given for hole in absent(getattr(value, name), f"{place}.{name}")]
    if isinstance(value, list):
        return [hole for i, item in enumerate(value) for hole in absent(item, f"{place}[{i}]")]
    return []


class Refused(BaseModel):
    """The body of every answer that is an error, as the SDK unpacks it."""

    error: ErrorObject
