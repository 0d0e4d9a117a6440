"""The parameters of lists, strictly read, and the shape that every list has."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from overnight.api.deps import Request
from overnight.domain.errors import InvalidParameter


def in_path(request: Request, name: str) -> str:
    """The part of the path that a route calls `name`."""
    return str(request.path_params[name])


def text(request: Request, name: str) -> str | None:
    """A query parameter that may be given once. Raises InvalidParameter where it is given more often.

    And where it holds a zero character, which the database has no place for.
    """
    given = request.query_params.getall(name, [])
    if len(given) > 1:
        raise InvalidParameter(f"`{name}` may be given once.", param=name)
    if given and "\0" in given[0]:
        raise InvalidParameter(f"`{name}` may not hold a zero character.", param=name)
    return str(given[0]) if given else None


def integer(request: Request, name: str, *, default: int, least: int, most: int) -> int:
    """A whole number from `least` to `most`. Raises InvalidParameter."""
    given = text(request, name)
    if given is None:
        return default
    is_number = given.isascii() and given.isdecimal() and len(given) <= 18
    if not is_number or not least <= int(given) <= most:
        raise InvalidParameter(f"`{name}` must be a whole number from {least:,} to {most:,}.", param=name)
    return int(given)


def seconds(request: Request, name: str) -> int | None:
    """A time in whole unix seconds; None where it is not given. Raises InvalidParameter."""
    given = text(request, name)
    if given is None:
        return None
    if not (given.isascii() and given.isdecimal() and len(given) <= 18):
        raise InvalidParameter(f"`{name}` must be a time in whole unix seconds.", param=name)
    return int(given)


def choice(request: Request, name: str, *, default: str, allowed: Collection[str]) -> str:
    """One of some words. Raises InvalidParameter."""
    given = text(request, name)
    if given is None:
        return default
    if given not in allowed:
        raise InvalidParameter(f"`{name}` must be one of {_listed(allowed)}.", param=name)
    return given


def choices(request: Request, name: str, *, allowed: Collection[str]) -> list[str]:
    """Some of some words, each as a parameter of its own; none where it is not given. Raises InvalidParameter."""
    given = [str(value) for value in request.query_params.getall(name, [])]
    if not set(given) <= set(allowed):
        raise InvalidParameter(f"`{name}` may be given several times, each as one of {_listed(allowed)}.", param=name)
    return given


def as_list(data: list[dict[str, Any]], *, has_more: bool) -> dict[str, Any]:
    """A page of a list; the caller asks for the next one with `after` = `last_id`."""
    return {
        "object": "list",
        "data": data,
        "first_id": data[0]["id"] if data else None,
        "last_id": data[-1]["id"] if data else None,
        "has_more": has_more,
    }


def _listed(words: Collection[str]) -> str:
    return ", ".join(f"`{word}`" for word in words)
