"""Replies that come compressed although nobody asked for it."""

from __future__ import annotations

import zlib

_EITHER_HEADER = 32 + zlib.MAX_WBITS
_NO_HEADER = -zlib.MAX_WBITS


class TooLargeDecodedError(Exception):
    """The body is larger than allowed once it is decoded."""


class UndecodableError(Exception):
    """The body is not what its Content-Encoding says."""


def decode_body(body: bytes, encoding: str, most_bytes: int) -> bytes:
    """Undo a Content-Encoding of gzip or deflate (RFC 9110, section 8.4.1), never making more than `most_bytes`.

    Raises TooLargeDecodedError or UndecodableError.
    """
    name = encoding.strip().lower()
    if name in ("", "identity"):
        return body
    if name not in ("gzip", "x-gzip", "deflate"):
        raise UndecodableError(f"the encoding {name[:40]!r} was not asked for")
    try:
        return _inflate(body, _EITHER_HEADER, most_bytes)
    except zlib.error as error:
        if name != "deflate":
            raise UndecodableError("it is not valid gzip") from error
    # Some servers send bare deflate data without the zlib header that the standard wants.
    try:
        return _inflate(body, _NO_HEADER, most_bytes)
    except zlib.error as error:
        raise UndecodableError("it is not valid deflate data") from error


def _inflate(body: bytes, window_bits: int, most_bytes: int) -> bytes:
    inflater = zlib.decompressobj(window_bits)
    plain = inflater.decompress(body, most_bytes + 1)
    if len(plain) > most_bytes:
        raise TooLargeDecodedError
    if not inflater.eof or inflater.unused_data:
        raise UndecodableError("it is cut short, or followed by something else")
    return plain
