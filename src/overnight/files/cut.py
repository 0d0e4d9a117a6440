"""Where a file is cut into the chunks that are stored."""

from __future__ import annotations

from collections.abc import Iterator

from overnight.domain.limits import CHUNK_BYTES, MIB

LONGEST_CHUNK = MIB
"""A chunk is cut here where no line ends before: it then holds a part of a very long line."""


class Cutter:
    """Cuts a stream at the last line end within CHUNK_BYTES, else at the first one behind.

    The same bytes are cut in the same places however they arrive.
    """

    def __init__(self) -> None:
        self._held = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Take some bytes and yield the chunks that are complete."""
        self._held += data
        while cut := self._place():
            yield self._take(cut)

    def rest(self) -> bytes:
        """Take what is left at the end of the stream; it may be nothing."""
        return self._take(len(self._held))

    def _place(self) -> int:
        held = self._held
        if len(held) < CHUNK_BYTES:
            return 0
        line_end = held.rfind(b"\n", 0, CHUNK_BYTES)
        if line_end < 0:
            line_end = held.find(b"\n", CHUNK_BYTES, LONGEST_CHUNK)
        if line_end >= 0:
            return line_end + 1
        return LONGEST_CHUNK if len(held) >= LONGEST_CHUNK else 0

    def _take(self, count: int) -> bytes:
        with memoryview(self._held) as view:
            chunk = bytes(view[:count])
        del self._held[:count]
        return chunk
