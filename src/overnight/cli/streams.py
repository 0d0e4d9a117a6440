"""Standard output and standard error of terminals that cannot show every character."""

from __future__ import annotations

import codecs
import io
import sys

_PLAIN = {"–": "-", "…": "...", "·": "-", "█": "#", "░": ".", "━": "-", "╸": "-", "╺": "-", "│": "|"}
_ERRORS = "overnight.plain"


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
