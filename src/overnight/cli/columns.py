"""How wide the columns of a table may be in a terminal that has not room for all of them."""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Iterable, Sequence

GAP = 2
"""Columns between two columns."""
SHORTEST = 8
"""Columns that are left of one that is shortened."""


def total(widths: Sequence[int]) -> int:
    """How wide a row of such columns is."""
    return sum(widths) + GAP * (len(widths) - 1)


def fitted(widths: Sequence[int], shorten: Collection[int], room: int) -> list[int] | None:
    """The widths, some columns made smaller, the widest first, so that a row fits; None where none does."""
    found = list(widths)
    for _ in range(max(total(found) - room, 0)):
        widest = max(shorten, key=lambda column: found[column], default=None)
        if widest is None or found[widest] <= SHORTEST:
            return None
        found[widest] -= 1
    return found


def cut(cell: str, width: int) -> str:
    """A cell that is no longer than its column."""
    return cell if len(cell) <= width else f"{cell[: width - 1].rstrip(', ')}…"


def flowed(cells: Iterable[str], room: int, indent: str) -> list[str]:
    """Cells one after the other in as many lines as they take; only one that is longer is broken, between words."""
    lines: list[str] = []
    for cell in filter(None, cells):
        if lines and len(lines[-1]) + GAP + len(cell) <= room:
            lines[-1] += " " * GAP + cell
        else:
            width = max(room - len(indent), 1)
            broken = textwrap.wrap(cell, width, break_long_words=False, break_on_hyphens=False)
            lines += [indent + line for line in broken]
    return lines
