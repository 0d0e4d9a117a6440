"""What was compressed comes back, from any place on, and damage is never taken for an end."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from overnight.store import zstd
from overnight.store.zstd import Damaged

_chance = random.Random(3)
TEXTS = [_chance.randbytes(5_000) * 3, b"a", b"b" * 300_000, b"line\n" * 900, _chance.randbytes(140_000)]
WHOLE = b"".join(TEXTS)
FRAMES = [zstd.compress(text) for text in TEXTS]
STORED = b"".join(FRAMES)
BEHIND_TWO = len(TEXTS[0]) + len(TEXTS[1])


def read(stored: bytes, start: int, stop: int) -> bytes:
    return b"".join(zstd.read(stored, start, stop))


def test_every_part_of_frames_is_the_slice_of_their_text() -> None:
    places = [0, 1, 14_999, 15_000, 15_001, 15_002, 300_000, 315_001, len(WHOLE) - 1, len(WHOLE)]
    for start in places:
        for stop in (p for p in places if p >= start):
            assert read(STORED, start, stop) == WHOLE[start:stop], (start, stop)


def test_a_long_text_comes_in_pieces() -> None:
    assert [len(piece) for piece in zstd.read(STORED, 0, len(WHOLE))] == [
        zstd.PIECE_BYTES,
        len(WHOLE) - zstd.PIECE_BYTES,
    ]


def test_frames_are_opened_in_between_by_others() -> None:
    pieces = zstd.read(STORED, 0, len(WHOLE))
    got = next(pieces)
    assert zstd.decompress(FRAMES[3]) == TEXTS[3]
    assert read(STORED, 7, 70) == WHOLE[7:70]
    assert got + b"".join(pieces) == WHOLE


def test_threads_do_not_share_a_context() -> None:
    with ThreadPoolExecutor(4) as threads:
        opened = list(threads.map(lambda n: zstd.decompress(FRAMES[n % 5]) == TEXTS[n % 5], range(400)))
        contexts = set(threads.map(_context_once_all_are_here, range(4)))
    assert all(opened)
    assert len(contexts) == 4


_all_here = Barrier(4, timeout=60)


def _context_once_all_are_here(_: int) -> int:
    _all_here.wait()
    return id(zstd._contexts.decompressor)


def test_frames_before_the_part_are_not_opened() -> None:
    first = bytearray(FRAMES[0])
    first[20:-5] = bytes(len(first) - 25)
    stored = bytes(first) + b"".join(FRAMES[1:])
    assert read(stored, 15_000, len(WHOLE)) == WHOLE[15_000:]
    with pytest.raises(Damaged):
        read(stored, 0, 10)


@pytest.mark.parametrize("start", [0, BEHIND_TWO + 5])
@pytest.mark.parametrize("stored", [STORED[:-1], STORED[:-200_000], FRAMES[0], b"", STORED[:20]])
def test_less_than_was_written_is_damage(stored: bytes, start: int) -> None:
    with pytest.raises(Damaged):
        read(stored, start, len(WHOLE))


@pytest.mark.parametrize(
    "frame", [b"", b"nothing that was ever compressed", FRAMES[0][:-1], FRAMES[0] + b"x", FRAMES[0] + FRAMES[1]]
)
def test_what_is_not_one_whole_frame_is_damage(frame: bytes) -> None:
    with pytest.raises(Damaged):
        zstd.decompress(frame)


def test_a_frame_that_says_it_is_longer_than_any_is_not_opened() -> None:
    # The head of RFC 8878, section 3.1.1.1: a single segment, its length in eight bytes, then one empty last block.
    frame = bytes.fromhex("28b52ffd") + b"\xe0" + (zstd.LONGEST_TEXT + 1).to_bytes(8, "little") + b"\x01\x00\x00"
    with pytest.raises(Damaged, match="longer"):
        zstd.decompress(frame)
