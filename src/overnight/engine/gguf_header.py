"""Reads the facts about a model from the front of a GGUF file, without trusting a byte of it.

The format is described at https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. Only single values are
kept; the long lists (vocabulary, merges) are stepped over. Every length is checked against what is left of
the file before it is followed, so a hostile header costs neither memory nor more than a bounded time.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

from overnight.engine.errors import EngineError

FORMS: Mapping[int, str] = {
    0: "<B",
    1: "<b",
    2: "<H",
    3: "<h",
    4: "<I",
    5: "<i",
    6: "<f",
    7: "<?",
    10: "<Q",
    11: "<q",
    12: "<d",
}
STRING = 8
ARRAY = 9

MOST_ENTRIES = 4_096
"""Real models have between twenty and a few hundred."""
LONGEST_KEY = 65_535
LONGEST_STRING = 1 << 20
"""The longest string that is read; chat templates stay below 64 KiB."""
MOST_TEXT = 4 << 20
"""All keys and strings that are read, in bytes."""
MOST_STRINGS = 2_000_000
"""Strings stepped over in all lists together; the largest vocabularies and their merges have 800,000."""

Value = str | int | float | bool


def read_gguf_header(path: Path) -> dict[str, Value]:
    """Every single value of the header by its key. Raises EngineError with the file and what is wrong."""
    try:
        if path.exists() and not path.is_file():
            # Opening a pipe or a device could wait for ever.
            raise EngineError(f"{path} is not a file.")
        with path.open("rb") as file:
            return _Reader(file, path.stat().st_size).header()
    except OSError as error:
        raise EngineError(f"{path} cannot be read: {error.strerror or error}.") from error
    except _BadHeaderError as error:
        raise EngineError(f"{path} is not a usable GGUF file: {error}.") from error


class _BadHeaderError(Exception):
    """What is wrong with the header, as the end of a sentence."""


class _Reader:
    """Walks through the header once; `left` is the number of bytes between here and the end of the file."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self.file = file
        self.left = size
        self.text_left = MOST_TEXT
        self.strings_left = MOST_STRINGS

    def header(self) -> dict[str, Value]:
        if self.left == 0:
            raise _BadHeaderError("it is empty")
        if self.left < 24 or self.take(4) != b"GGUF":
            raise _BadHeaderError("it does not begin like one")
        version = self.count("<I")
        if version not in (2, 3):
            raise _BadHeaderError(f"its format version {version} is not one that the engine reads (2 or 3)")
        self.skip(8)  # The number of tensors.
        entries = self.count("<Q")
        if entries > MOST_ENTRIES:
            raise _BadHeaderError(f"it claims {entries:,} entries in its header")
        found: dict[str, Value] = {}
        for _ in range(entries):
            key = self.text(LONGEST_KEY)
            value = self.value(self.count("<I"))
            if key is not None and value is not None:
                found[key] = value
        return found

    def value(self, code: int) -> Value | None:
        """One value; None for a list or an over-long string, which are stepped over."""
        if code == STRING:
            return self.text(LONGEST_STRING)
        if code != ARRAY:
            return self.number(self.form(code))
        inner = self.count("<I")
        count = self.count("<Q")
        if inner != STRING:
            self.skip(count * struct.calcsize(self.form(inner)))
            return None
        self.strings_left -= count
        if self.strings_left < 0:
            raise _BadHeaderError("its lists of words are too long")
        for _ in range(count):
            self.skip(self.count("<Q"))
        return None

    def form(self, code: int) -> str:
        if code not in FORMS:
            raise _BadHeaderError(f"its header has a value of the unknown type {code}")
        return FORMS[code]

    def text(self, longest: int) -> str | None:
        length = self.count("<Q")
        if length > longest:
            self.skip(length)
            return None
        self.text_left -= length
        if self.text_left < 0:
            raise _BadHeaderError("it has too much text in its header")
        return self.take(length).decode("utf-8", "replace")

    def number(self, form: str) -> int | float | bool:
        number: int | float | bool = struct.unpack(form, self.take(struct.calcsize(form)))[0]
        return number

    def count(self, form: str) -> int:
        return int(self.number(form))

    def take(self, length: int) -> bytes:
        self.spend(length)
        taken = self.file.read(length)
        if len(taken) != length:
            raise _BadHeaderError("it ends in the middle of its header")
        return taken

    def skip(self, length: int) -> None:
        self.spend(length)
        self.file.seek(length, 1)

    def spend(self, length: int) -> None:
        if length > self.left:
            raise _BadHeaderError("it ends in the middle of its header")
        self.left -= length
