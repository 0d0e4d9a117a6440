"""What every benchmark can be asked for: a smaller version, some of its rows, how often."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping
from typing import TypeVar

T = TypeVar("T")


def parser(doc: str | None, rows: Iterable[str] = (), *, rounds: int | None = None) -> argparse.ArgumentParser:
    """The options; `rows` are the names that `--only` takes, `rounds` is how often by default."""
    made = argparse.ArgumentParser(description=doc)
    made.add_argument("--quick", action="store_true", help="a smaller version, to see that it works")
    if names := tuple(rows):
        made.add_argument("--only", action="append", metavar="ROW", choices=names, help=f"one of: {', '.join(names)}")
    if rounds is not None:
        made.add_argument("--rounds", type=int, help=f"medians are of so many (default: {rounds}, 1 if quick)")
    made.set_defaults(default_rounds=rounds)
    return made


def rows_of(given: argparse.Namespace, rows: Mapping[str, T]) -> dict[str, T]:
    """Those that were asked for, in the order of the table; all without a choice."""
    return {name: row for name, row in rows.items() if not given.only or name in given.only}


def rounds_of(given: argparse.Namespace) -> int:
    """How often each row is measured."""
    return int(given.rounds or (1 if given.quick else given.default_rounds))
