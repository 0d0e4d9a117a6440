"""Where files are cut."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from overnight.domain.limits import CHUNK_BYTES
from overnight.files.cut import LONGEST_CHUNK, Cutter


def cut(data: bytes, step: int) -> list[bytes]:
    cutter = Cutter()
    chunks = [c for i in range(0, len(data), step) for c in cutter.feed(data[i : i + step])]
    return [*chunks, cutter.rest()]


def test_a_chunk_ends_at_the_last_line_end_that_fits() -> None:
    data = (b"x" * 999 + b"\n") * 1_000

    assert [len(chunk) for chunk in cut(data, 64_000)] == [262_000, 262_000, 262_000, 214_000]


def test_a_line_longer_than_a_chunk_is_kept_in_one_piece_where_it_can_be() -> None:
    data = b"x" * (2 * CHUNK_BYTES) + b"\n" + b"y\n"

    assert [len(chunk) for chunk in cut(data, 64_000)] == [2 * CHUNK_BYTES + 1, 2]


def test_bytes_without_a_line_end_are_cut_at_the_longest_chunk() -> None:
    assert [len(c) for c in cut(bytes(2 * LONGEST_CHUNK + 5), 64_000)] == [LONGEST_CHUNK, LONGEST_CHUNK, 5]


lengths = st.lists(
    st.sampled_from([0, 1, 1_000, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, LONGEST_CHUNK]), max_size=8
)


@given(lengths, st.integers(60_000, 2_000_000))
def test_the_same_bytes_are_cut_alike_however_they_arrive(line_lengths: list[int], step: int) -> None:
    data = b"".join(b"x" * n + b"\n" for n in line_lengths)

    chunks = cut(data, step)

    assert chunks == cut(data, len(data) or 1)
    assert b"".join(chunks) == data
    assert all(len(chunk) <= LONGEST_CHUNK for chunk in chunks)
