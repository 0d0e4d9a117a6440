"""Compression of what is stored: small zstd frames that together are one valid stream.

Each frame says how long its text is. One context opens them all: making one costs as much as opening a frame of 8
lines.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator

import zstandard

from overnight.domain.limits import GIB, KIB

_LEVEL = 1
"""Level 3 saves 8 % of the bytes and costs 1.4 µs a result more."""

LONGEST_TEXT = GIB
"""Of one frame: as much as one value of PostgreSQL can hold. Nothing that was written here comes near."""

PIECE_BYTES = 256 * KIB
"""What `read` yields at a time: large enough that sending it costs more than asking for it."""


class Damaged(Exception):
    """What was stored cannot be opened any more."""


class _Contexts(threading.local):
    """A context serves one thread at a time, for it lets others run while it works. Slots would be shared by all."""

    def __init__(self) -> None:
        self.compressor = zstandard.ZstdCompressor(level=_LEVEL)
        self.decompressor = zstandard.ZstdDecompressor()


_contexts = _Contexts()


def compress(data: bytes) -> bytes:
    """One frame."""
    return _contexts.compressor.compress(data)


def decompress(frame: bytes) -> bytes:
    """The text of one frame. Raises Damaged."""
    try:
        if zstandard.frame_content_size(frame) > LONGEST_TEXT:
            raise Damaged("a stored zstd frame says that it is longer than any can be")
        return _contexts.decompressor.decompress(frame, allow_extra_data=False)
    except zstandard.ZstdError as e:
        raise Damaged(f"a stored zstd frame cannot be opened: {e}") from None


def read(frames: bytes, start: int, stop: int) -> Iterator[bytes]:
    """Yield the bytes [start, stop) of the text of frames, up to PIECE_BYTES at a time; no frame before them is opened.

    Raises Damaged, also where there is less text. Other frames may be opened in between.
    """
    if start == stop:
        return
    try:
        at, skipped = _find_frame(frames, start) if start else (0, 0)
        # A context of its own, for a reader keeps its place in it.
        decompressor = zstandard.ZstdDecompressor()
        reader = decompressor.stream_reader(memoryview(frames)[at:], read_across_frames=True)
        before = start - skipped
        while before:
            before -= len(_some(reader, before))
        while start < stop:
            piece = _some(reader, stop - start)
            start += len(piece)
            yield piece
    except zstandard.ZstdError as e:
        raise Damaged(f"a stored zstd frame cannot be opened: {e}") from None


def _some(reader: zstandard.ZstdDecompressionReader, most: int) -> bytes:
    piece = reader.read(min(most, PIECE_BYTES))
    if not piece:
        raise Damaged("stored zstd frames hold less than was written")
    return piece


def _find_frame(frames: bytes, place: int) -> tuple[int, int]:
    """Where the frame that holds byte `place` of the text begins, among the frames and in the text."""
    at = begins = 0
    while at < len(frames):
        head = frames[at : at + _LONGEST_HEAD]
        size = zstandard.frame_content_size(head)
        if size < 0:
            break
        if begins + size > place:
            return at, begins
        at = _end_of_frame(frames, at + zstandard.frame_header_size(head))
        begins += size
    raise Damaged("stored zstd frames hold less than was written")


_LONGEST_HEAD = 18
"""Bytes of a frame before its first block."""


def _end_of_frame(frames: bytes, at: int) -> int:
    """Where a frame ends whose first block is at `at` (RFC 8878, section 3.1.1.2); none of ours has a checksum."""
    while at < len(frames):
        block = int.from_bytes(frames[at : at + 3], "little")
        is_repeated = block >> 1 & 3 == 1
        at += 3 + (1 if is_repeated else block >> 3)
        if block & 1:
            break
    return at
