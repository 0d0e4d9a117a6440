"""A download: the whole, a range of it, or only what a caller needs to know (RFC 9110, sections 13 and 14)."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any
from urllib.parse import quote

from litestar import Response
from litestar.enums import HttpMethod

from overnight.api import errors
from overnight.api.deps import Request
from overnight.api.pieces import Pieces
from overnight.domain.errors import RangeNotSatisfiable

MEDIA_TYPE = "application/jsonl; charset=utf-8"
"""With the encoding: some clients guess it from the bytes otherwise, slowly and wrongly."""

_RANGE = re.compile(r"bytes[ \t]*=[ \t]*(?:([0-9]{1,1000})-([0-9]{0,1000})|-([0-9]{1,1000}))[ \t]*", re.IGNORECASE)
_ETAG = re.compile(r'(?:W/)?("[^"]*")')
_UNSAFE_IN_QUOTES = re.compile(r"[^ !#$&-\[\]-~]")
"""What a quoted file name cannot hold for every client: not ASCII, quotes, backslashes, percent signs."""


def download(
    request: Request,
    *,
    etag: str,
    filename: str,
    size: int,
    read: Callable[[int, int], AsyncIterator[bytes]],
    more: Mapping[str, str] | None = None,
) -> Response[Any]:
    """Answer a GET or HEAD of `size` bytes, of which `read(start, stop)` yields those that are sent.

    `etag` is the strong validator of the bytes, quotes included; `more` are headers that go along.
    """
    given = request.headers.get
    headers = {"etag": etag, "accept-ranges": "bytes", "content-disposition": disposition(filename), **(more or {})}
    if is_known(given("if-none-match"), etag):
        return Response(b"", status_code=304, headers=headers)
    if request.method == HttpMethod.HEAD:
        # A range is for GET alone.
        return Response(b"", status_code=200, headers={**headers, "content-length": str(size)}, media_type=MEDIA_TYPE)
    try:
        wanted = None if has_changed(given("if-range"), etag) else wanted_range(given("range"), size)
    except RangeNotSatisfiable as e:
        shown = errors.show(e, {"content-range": f"bytes */{size}"})
        return Response(shown.body, status_code=shown.status, headers=shown.headers, media_type="application/json")
    start, stop = wanted or (0, size)
    headers["content-length"] = str(stop - start)
    if wanted is not None:
        headers["content-range"] = f"bytes {start}-{stop - 1}/{size}"
    status = 200 if wanted is None else 206
    return Pieces(read(start, stop), status_code=status, headers=headers, media_type=MEDIA_TYPE)


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
