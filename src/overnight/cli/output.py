"""How commands speak: tables for people, JSON for programs, complaints on standard error."""

from __future__ import annotations

import json
import re
import shutil
import sys
import textwrap
from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from overnight.cli.columns import GAP, cut, fitted, flowed, total
from overnight.cli.streams import is_unicode

UNBOUNDED = 10_000
"""Columns of what is no terminal."""

INDENT = "  "

_UNIT = re.compile(r"(?<=: )overnight .*|\S+")
"""A word, or a command to give."""
_SURROGATE = re.compile("[\ud800-\udfff]")

READABLE = 78
"""Columns of text for people in what is no terminal."""

people = Console(stderr=False, highlight=False, emoji=False)
aside = Console(stderr=True, highlight=False, emoji=False)
"""For what accompanies a result: progress, hints, complaints."""


def complain(message: str) -> None:
    """Say in one sentence why something could not be done."""
    say(Text.assemble(("error:", "bold red"), " ", message))


def say(message: str | Text) -> None:
    """Say something beside the result, as it is: brackets, say, of a path, are no markup."""
    _print(message, aside)


def answer(message: str) -> None:
    """Print a sentence that is the result, as it is."""
    _print(message, people)


def _print(message: str | Text, to: Console) -> None:
    text = Text(message) if isinstance(message, str) else message
    for line in text.divide(_breaks(text.plain, to.width)) if to.is_terminal else [text]:
        line.rstrip()
        to.print(line, soft_wrap=True)


def _breaks(text: str, width: int) -> list[int]:
    """Where lines begin that are broken only between words; a path and a command can still be copied whole."""
    found, start = [], 0
    for unit in _UNIT.finditer(text):
        if unit.end() - start > width and unit.start() > start:
            start = unit.start()
            found.append(start)
    return found


def as_json(value: object) -> None:
    """Print one JSON document for a program."""
    sys.stdout.write(_dumped(value, indent=2) + "\n")


def as_line(value: object) -> None:
    """Print one JSON document as a line, at once."""
    sys.stdout.write(_dumped(value, indent=None) + "\n")
    sys.stdout.flush()


def _dumped(value: object, indent: int | None) -> str:
    text = json.dumps(value, ensure_ascii=not is_unicode(sys.stdout), indent=indent)
    # The name of a file may hold bytes that are no UTF-8, which only escapes can tell.
    return text if text.isascii() or not _SURROGATE.search(text) else json.dumps(value, indent=indent)


def print_file(path: Path) -> None:
    """Write a file to standard output as it is."""
    with path.open("rb") as source:
        shutil.copyfileobj(source, sys.stdout.buffer)
    sys.stdout.flush()


def table(
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    whole: int = 1,
    stacked: bool = False,
    shorten: Collection[int] = (),
    to: Console = people,
) -> None:
    """Print rows for people; cells of the first `whole` columns are never broken, so that they can be copied.

    Where rows are too long for the terminal, the columns `shorten` are cut as far as needed; where that is not enough
    and rows are `stacked`, the first cell has a line of its own and nothing is cut.
    """
    if not to.is_terminal:
        # A file or a pipe has no width; a row there is a line.
        to = Console(file=to.file, highlight=False, emoji=False, width=UNBOUNDED)
    told = [["" if cell is None else str(cell) for cell in row] for row in rows]
    widths = [max(map(len, cells)) for cells in zip(columns, *told, strict=True)]
    fitting = fitted(widths, shorten, to.width)
    if stacked and fitting is None:
        _stacked(told, widths[1:], to)
        return
    if fitting is not None:
        told = [[cut(*cell) for cell in zip(row, fitting, strict=True)] for row in told]
    shown = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for index, name in enumerate(columns):
        shown.add_column(name, overflow="fold", no_wrap=index < whole)
    for row in told:
        shown.add_row(*map(Text, row))
    to.print(shown)


def _stacked(rows: Sequence[Sequence[str]], widths: Sequence[int], to: Console) -> None:
    """Print each row in two lines, its first cell above the others; in more where these don't fit."""
    is_one_line = len(INDENT) + total(widths) <= to.width
    for first, *rest in rows:
        to.print(first, soft_wrap=True, markup=False, style="bold")
        if is_one_line:
            cells = (f"{cell:<{width}}" for cell, width in zip(rest, widths, strict=True))
            lines = [INDENT + (" " * GAP).join(cells).rstrip()]
        else:
            lines = flowed(rest, to.width, INDENT)
        for line in lines:
            to.print(line, soft_wrap=True, markup=False)


def entry(name: str, value: str, says: str, *, marked: bool = False, to: Console = people) -> None:
    """Print a name with its value, and below it what it is for; at a terminal a `marked` value is in bold."""
    width = to.width if to.is_terminal else READABLE
    to.print(Text.assemble(name, "  ", (value, "bold" if marked else "")), soft_wrap=True)
    for line in textwrap.wrap(says, max(width - 4, 20), break_long_words=False, break_on_hyphens=False):
        to.print(f"    {line}", soft_wrap=True, markup=False)


def facts(rows: Iterable[tuple[str, object]], *, to: Console = people) -> None:
    """Print what is known of one thing, a line for each fact; ids are never broken, so that they can be copied."""
    told = list(rows)
    indent = max(len(name) for name, _ in told) + 2
    for name, value in told:
        lines = [str(value)]
        if to.is_terminal:
            room = max(to.width - indent, 20)
            lines = textwrap.wrap(lines[0], room, break_long_words=False, break_on_hyphens=False)
            if room < max(map(len, lines), default=0) <= to.width - len(INDENT):
                # An id that is whole only on a line of its own has that.
                to.print(name)
                to.print(textwrap.indent("\n".join(lines), INDENT), soft_wrap=True, markup=False)
                continue
        for n, line in enumerate(lines or [""]):
            to.print(f"{'' if n else name:<{indent}}{line}", soft_wrap=True, markup=False)


def moment(seconds: int | None) -> str:
    """A time of the API as the reader's clock has it."""
    if seconds is None:
        return "–"
    return datetime.fromtimestamp(seconds, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def many(count: int, thing: str) -> str:
    """So many things, in words."""
    return f"{count:,} {thing}" if count == 1 else f"{count:,} {thing}s"


def counts(batch: dict[str, Any]) -> str:
    """How far a batch is: `answered/total`, and the failures where there are any."""
    count = batch["request_counts"]
    failed = f", {count['failed']:,} failed" if count["failed"] else ""
    return f"{count['completed']:,}/{count['total']:,}{failed}"
