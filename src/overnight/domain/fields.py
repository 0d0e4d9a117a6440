"""The fields of a call's JSON object, strictly read."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import jiter

from overnight.domain.errors import InvalidJSON, InvalidParameter, MissingParameter, UnknownParameter

KEPT_SECONDS = range(3_600, 2_592_001)
"""How long a file may be asked to be kept: an hour to 30 days."""


def read_object(body: bytes, known: Collection[str]) -> dict[str, Any]:
    """Parse a JSON object that has no fields but the known ones; those that are null are left out.

    Raises InvalidJSON and UnknownParameter.
    """
    return only_known(read_strictly(body), known)


def read_strictly(body: bytes) -> dict[str, Any]:
    """Parse a JSON object: no key twice, only finite numbers. Raises InvalidJSON."""
    try:
        given = jiter.from_json(body, catch_duplicate_keys=True, allow_inf_nan=False)
    except ValueError as e:
        raise InvalidJSON(f"The body is not strict JSON in UTF-8: {e}.") from None
    if type(given) is not dict:
        raise InvalidJSON("The body is not a JSON object.")
    return given


def only_known(given: Mapping[str, Any], known: Collection[str]) -> dict[str, Any]:
    """The fields that are not null. Raises UnknownParameter for one that is not known."""
    for name in given:
        if name not in known:
            shown = name[:80].replace("\0", "\\0")
            raise UnknownParameter(f"The field {shown!r} is not known; leave it out.", param=shown)
    return {name: value for name, value in given.items() if value is not None}


def text(given: Mapping[str, Any], name: str, *, instead: str = "") -> str:
    """A field that must be there and be a string; `instead` says what else could be given.

    Raises MissingParameter and InvalidParameter.
    """
    if name not in given:
        raise MissingParameter(f"The field {name!r} is missing{instead}.", param=name)
    value = given[name]
    if type(value) is not str:
        raise InvalidParameter(f"{name} must be a string.", param=name)
    return value


def kept_seconds(given: Mapping[str, Any], name: str) -> int | None:
    """The seconds of a field like `{"anchor": "created_at", "seconds": 3600}`; None where it is not given.

    Raises MissingParameter, UnknownParameter and InvalidParameter.
    """
    value = given.get(name)
    if value is None:
        return None
    if not isinstance(value, dict):
        raise InvalidParameter(f"{name} must be an object with anchor and seconds.", param=name)
    for part in ("anchor", "seconds"):
        if part not in value:
            raise MissingParameter(f"{name}.{part} is missing.", param=f"{name}.{part}")
    if len(value) > 2:
        raise UnknownParameter(f"{name} takes anchor and seconds, nothing else.", param=name)
    if value["anchor"] != "created_at":
        raise InvalidParameter(f"{name}.anchor must be 'created_at'.", param=f"{name}.anchor")
    seconds = value["seconds"]
    if type(seconds) is not int or seconds not in KEPT_SECONDS:
        says = f"{name}.seconds must be a whole number from {KEPT_SECONDS[0]} to {KEPT_SECONDS[-1]}."
        raise InvalidParameter(says, param=f"{name}.seconds")
    return seconds
