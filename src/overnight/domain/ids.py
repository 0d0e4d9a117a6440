"""Public ids: a prefix and 32 lower-case hexadecimal digits, ordered by time."""

from __future__ import annotations

import os
import random
import re
from functools import lru_cache
from uuid import UUID

FILE = "file-"
BATCH = "batch_"
REQUEST_IN_BATCH = "batch_req_"
REQUEST = "req_"
UPLOAD = "upload_"
PART = "part_"

_random = random.Random(os.urandom(32)).getrandbits  # noqa: S311  names, not secrets
_VARIANT = 0b11 << 62
_HEX = re.compile(r"[0-9a-f]{32}")


def new(milliseconds: int) -> UUID:
    """A UUID of version 7 (RFC 9562, section 5.7) for a moment given in unix milliseconds."""
    random = int.from_bytes(os.urandom(10), "big")
    value = (milliseconds & 0xFFFFFFFFFFFF) << 80 | 0x7 << 76 | (random >> 68) << 64
    return UUID(int=value | 0b10 << 62 | (random & 0x3FFFFFFFFFFFFFFF))


def new_text(prefix: str, milliseconds: int) -> str:
    """The public form of a new id, in a quarter of the time that `show(prefix, new(…))` takes.

    Its random part cannot be guessed from outside, and from inside it can: for names that open nothing.
    """
    rest = _random(76) & ~_VARIANT | 0b10 << 62
    return f"{prefix}{milliseconds & 0xFFFFFFFFFFFF:012x}7{rest:019x}"


def show(prefix: str, value: UUID) -> str:
    """The public form of an id."""
    return prefix + value.hex


def read(prefix: str, text: str) -> UUID | None:
    """The id behind its public form; None where `text` has another form, as for an id nobody has."""
    digits = text.removeprefix(prefix)
    if len(digits) == len(text) or not _HEX.fullmatch(digits):
        return None
    return UUID(hex=digits)


def of_request(batch: UUID, line: int) -> str:
    """The id of a batch's request: 24 digits of the batch, then its line in 8."""
    return f"{_of_batch(batch.int)}{line:08x}"


@lru_cache(256)
def _of_batch(batch: int) -> str:
    return f"{REQUEST_IN_BATCH}{batch >> 32:024x}"


def line_of(batch: UUID, text: str) -> int | None:
    """The line that a request's id names; None where it is not an id of this batch's requests."""
    digits = text.removeprefix(REQUEST_IN_BATCH)
    if len(digits) == len(text) or not _HEX.fullmatch(digits) or digits[:24] != batch.hex[:24]:
        return None
    return int(digits[24:], 16)
