"""Input files of a command: by name, by pattern, or from standard input."""

from __future__ import annotations

import glob
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from overnight.cli import output

STDIN = STDOUT = "-"

Files = Annotated[
    list[str],
    typer.Argument(
        metavar="FILE", help="JSONL, a request a line. Several files and patterns may be named; - is standard input."
    ),
]


@dataclass(frozen=True, slots=True)
class Input:
    """A file of requests. `path` is where it can be read, `name` how people know it."""

    name: str
    path: Path


@contextmanager
def read_inputs(words: Sequence[str]) -> Iterator[list[Input]]:
    """The files that some words of a command mean, each once, in their order, while the block runs.

    Standard input, and what else can be read only once, is copied to a file first. Raises BadParameter for a word
    that means no file.
    """
    found: dict[str, Input] = {}
    with TemporaryDirectory(prefix="overnight-") as folder:
        for word in words:
            for path in [None] if word == STDIN else _paths(word):
                key = STDIN if path is None else str(path.resolve())
                if key in found:
                    continue
                if path is not None and path.is_file():
                    found[key] = Input(_shown(path), path)
                else:
                    name = "stdin.jsonl" if path is None else f"{_shown(path)}.jsonl"
                    copy = Path(folder) / str(len(found)) / name
                    _copy(path, copy)
                    found[key] = Input(name, copy)
        yield list(found.values())


def _shown(path: Path) -> str:
    # A name on disk may hold bytes that are no UTF-8.
    return path.name.encode(errors="replace").decode()


def _copy(source: Path | None, copy: Path) -> None:
    copy.parent.mkdir()
    with copy.open("wb") as target:
        if source is not None:
            with source.open("rb") as file:
                shutil.copyfileobj(file, target)
            return
        if sys.stdin.isatty():
            output.say("Reading requests from the keyboard; end them with Ctrl-D.")
        shutil.copyfileobj(sys.stdin.buffer, target)


def _paths(word: str) -> list[Path]:
    if not word:
        raise typer.BadParameter("the name of a file is empty.", param_hint="FILE")
    # A shell leaves a pattern as it is where it is quoted; a file may also be named like one.
    if Path(word).exists() or not glob.has_magic(word):
        paths = [Path(word)]
    else:
        paths = [path for path in map(Path, sorted(glob.glob(word, recursive=True))) if path.is_file()]  # noqa: PTH207
        if not paths:
            raise typer.BadParameter(f"No file matches {word!r}.")
    for path in paths:
        if not path.exists():
            raise typer.BadParameter(f"{word!r} does not exist.")
        if path.is_dir():
            raise typer.BadParameter(f"{word!r} is a folder. Name files: {word.rstrip('/')}/*.jsonl")
        if not os.access(path, os.R_OK):
            raise typer.BadParameter(f"{str(path)!r} cannot be read: you have no permission.")
    return paths
