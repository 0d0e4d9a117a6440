"""Named SQL: each file of store/sql holds the statements of one noun."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import Any

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_PARAMETER = re.compile(r"(?<![:\w]):([a-z_]\w*)")


class Statement:
    """One statement and the names of its parameters, in the order in which PostgreSQL numbers them."""

    __slots__ = ("name", "parameters", "sql")

    def __init__(self, name: str, text: str) -> None:
        order: dict[str, int] = {}

        def number(match: re.Match[str]) -> str:
            return f"${order.setdefault(match[1], len(order) + 1)}"

        self.name = name
        self.sql = _PARAMETER.sub(number, text)
        self.parameters = tuple(order)

    def arguments(self, given: dict[str, Any]) -> list[Any]:
        """The values in their order. Raises TypeError where one is missing or not known."""
        if given.keys() != set(self.parameters):
            raise TypeError(f"{self.name} takes {self.parameters}, not {tuple(given)}")
        return [given[name] for name in self.parameters]


@cache
def load(noun: str) -> dict[str, Statement]:
    """Read the statements of one noun: name → statement. Comments are dropped before they are sent."""
    text = files("overnight.store").joinpath("sql", f"{noun}.sql").read_text("utf-8")
    parts = _NAME.split(text)
    found: dict[str, Statement] = {}
    for name, body in zip(parts[1::2], parts[2::2], strict=True):
        if name in found:
            raise ValueError(f"{noun}.sql names {name} twice")
        kept = [line for line in body.splitlines() if line.strip() and not line.lstrip().startswith("--")]
        found[name] = Statement(name, "\n".join(kept).rstrip("; \n"))
    return found
