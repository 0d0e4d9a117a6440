"""The bytes of a file, and which of them a caller asks for."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from urllib.parse import quote

from overnight.domain.errors import RangeNotSatisfiable
from overnight.files.shape import StoredFile
from overnight.store import answers
from overnight.store import files as rows
from overnight.store.pool import Store

_RANGE = re.compile(r"bytes[ \t]*=[ \t]*(?:([0-9]{1,1000})-([0-9]{0,1000})|-([0-9]{1,1000}))[ \t]*", re.IGNORECASE)
_ETAG = re.compile(r'(?:W/)?("[^"]*")')
_UNSAFE_IN_QUOTES = re.compile(r"[^ !#$&-\[\]-~]")
"""What a quoted file name cannot hold for every client: not ASCII, quotes, backslashes, percent signs."""


async def stream(store: Store, file: StoredFile, start: int, stop: int) -> AsyncIterator[bytes]:
    """Yield the bytes [start, stop) of a file; holds a few chunks at a time and no connection in between.

    Raises `store.files.FileGone` where they were removed meanwhile, so that nobody takes a part for the whole.
    """
    if file.batch is None or file.kind is None:
        pieces = rows.read_chunks(store, file.no, start, stop)
    else:
        pieces = answers.stream(store, file.batch, file.kind, start, stop)
    async for piece in pieces:
        start += len(piece)
        yield piece
    if start < stop:
        raise rows.FileGone


def wanted_range(header: str | None, size: int) -> tuple[int, int] | None:
    """Read a `Range` header (RFC 9110, section 14.2): the bytes [start, stop) of `size`, or None for all of them.

    What is malformed, of another unit or asks for several ranges is ignored, as the RFC allows.
    Raises RangeNotSatisfiable where the range holds no byte of the file.
    """
    match = _RANGE.fullmatch(header) if header and size else None
    if match is None:
        return None
    first, last, suffix = match.groups()
    if suffix is not None:
        start, stop = max(size - int(suffix), 0), size
    else:
        start = int(first)
        stop = min(int(last) + 1, size) if last else size
        if last and int(last) < start:
            return None
    if start >= size:
        raise RangeNotSatisfiable(f"The range holds no byte of the file, which is {size:,} bytes long.")
    return start, stop


def has_changed(if_range: str | None, etag: str) -> bool:
    """Whether an `If-Range` header names another state of the file, so that a range of it would not fit.

    Compared strongly; a date never fits, for files have none that could tell two states apart.
    """
    return if_range is not None and if_range.strip() != etag


def is_known(if_none_match: str | None, etag: str) -> bool:
    """Whether an `If-None-Match` header says that the caller has these bytes already (compared weakly)."""
    if if_none_match is None:
        return False
    return if_none_match.strip() == "*" or etag in _ETAG.findall(if_none_match)


def disposition(filename: str) -> str:
    """The `Content-Disposition` of a download (RFC 6266): a name that every client reads, then the exact one."""
    plain = _UNSAFE_IN_QUOTES.sub("_", filename)
    return f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(filename, safe='')}"
