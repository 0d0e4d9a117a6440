"""Standard output and standard error of terminals that cannot show every character."""

from __future__ import annotations

import codecs
import io
import os
import sys

_PLAIN = {"–": "-", "…": "...", "·": "-", "█": "#", "░": ".", "━": "-", "╸": "-", "╺": "-", "│": "|"}
_ERRORS = "overnight.plain"


def open_closed() -> None:
    """Open what was closed of standard input, output and error to nowhere.

    Else a connection or a file would get its number, and what is said would go there.
    """
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        if getattr(sys, name) is None:
            nowhere = os.open(os.devnull, os.O_RDWR)
            if nowhere != number:
                os.dup2(nowhere, number)
                os.close(nowhere)
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8", closefd=False))


def show_all_characters() -> None:
    """Have what a terminal cannot show replaced by what it can, instead of failing in the middle of a line."""
    codecs.register_error(_ERRORS, _replace)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and not is_unicode(stream):
            stream.reconfigure(errors=_ERRORS)


def is_unicode(stream: object) -> bool:
    """Whether a stream can take every character."""
    return str(getattr(stream, "encoding", None) or "").lower().startswith("utf")


def _replace(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(_PLAIN.get(each, "?") for each in error.object[error.start : error.end]), error.end
