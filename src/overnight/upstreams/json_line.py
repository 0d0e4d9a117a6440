"""Foreign JSON, made fit to stand in a line of a results file."""

from __future__ import annotations

import json

import msgspec

MOST_ERROR_BYTES = 4096

_SPACE = b" \t\r\n"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
# Characters that str.splitlines takes for the end of a line. Those below U+0020 cannot stand in valid JSON as they are.
_SEPARATORS = ((b"\xe2\x80\xa8", b"\\u2028"), (b"\xe2\x80\xa9", b"\\u2029"), (b"\xc2\x85", b"\\u0085"))


class NotJsonError(Exception):
    """Bytes that are not one strict JSON value; the text says why, without quoting them."""


def decode_strictly(body: bytes) -> tuple[object, bytes]:
    """A JSON value, and its bytes on one line; NotJsonError for anything else.

    Strict means UTF-8, finite numbers only, no lone surrogates, and not nested too deeply to be read. The bytes are
    unchanged but for white space between tokens and for separators inside strings, which are escaped: numbers and
    other escapes stay as they were written.
    """
    body = body.strip(_SPACE).removeprefix(_BYTE_ORDER_MARK)
    try:
        value = msgspec.json.decode(body)
        # By number: a byte as bytes is looked for in four times the time.
        if 0x0A in body or 0x0D in body:
            body = msgspec.json.format(body, indent=-1)
    except msgspec.ValidationError as error:
        raise NotJsonError("it has a number that is not finite or too long") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise NotJsonError("it is cut short, or not UTF-8, or breaks the grammar of JSON") from error
    except RecursionError as error:
        raise NotJsonError("it is nested too deeply") from error
    return value, escape_separators(body)


def decode_leniently(body: bytes) -> object:
    """What can be read of a value that is not strict JSON, None where nothing can."""
    try:
        return json.loads(body.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None


def escape_separators(line: bytes) -> bytes:
    """Escape the characters inside strings at which some clients would split the line."""
    if line.isascii():
        return line
    for raw, escaped in _SEPARATORS:
        if raw in line:
            line = line.replace(raw, escaped)
    return line


def error_value(body: bytes) -> bytes | None:
    """What an upstream said about its failure, as one JSON value of at most 4 KiB; None when it said nothing.

    JSON that fits stays JSON. Anything else becomes a string, cut where a character ends.
    """
    body = body.strip(_SPACE)
    if not body:
        return None
    if len(body) <= 4 * MOST_ERROR_BYTES:
        try:
            _, line = decode_strictly(body)
        except NotJsonError:
            pass
        else:
            if len(line) <= MOST_ERROR_BYTES:
                return line
    return _as_string(body[:MOST_ERROR_BYTES].decode("utf-8", "replace"))


def _as_string(text: str) -> bytes:
    while True:
        written = escape_separators(json.dumps(text, ensure_ascii=False).encode())
        if len(written) <= MOST_ERROR_BYTES:
            return written
        # Every step leaves out at least one character; it comes near the limit in a few.
        text = text[: min(len(text) * MOST_ERROR_BYTES // len(written), len(text) - 1)]
