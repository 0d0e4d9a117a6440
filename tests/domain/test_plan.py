"""The order in which requests are stored."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overnight.domain.limits import BLOCK_BYTES, BLOCK_LINES, KIB
from overnight.domain.plan import LEAST_LINES, MOST_GROUPS, Block, Planner

requests = st.lists(
    st.tuples(st.integers(1, 40).map(lambda n: n * 16 * KIB), st.none() | st.integers(0, 5)), max_size=60
)


def plan(planner: Planner, given_requests: list[tuple[bytes, int | None]]) -> list[Block]:
    blocks: list[Block] = []
    for line, (request, group) in enumerate(given_requests):
        blocks += planner.add(line, request, f"id-{line}", group)
    return [*blocks, *planner.finish()]


@given(requests, st.integers(1, 40).map(lambda n: n * 64 * KIB))
def test_every_request_is_in_exactly_one_block(sizes: list[tuple[int, int | None]], buffer_bytes: int) -> None:
    given_requests = [(bytes(size), group) for size, group in sizes]

    blocks = plan(Planner(buffer_bytes), given_requests)

    assert sorted(line for block in blocks for line in block.lines) == list(range(len(sizes)))
    for block in blocks:
        assert [given_requests[line][0] for line in block.lines] == block.requests
        assert block.size == sum(map(len, block.requests))
        assert len(block.ids) == len(block.lines)


@given(requests, st.integers(1, 40).map(lambda n: n * 64 * KIB))
def test_a_block_is_never_larger_than_its_bound_and_one_request(
    sizes: list[tuple[int, int | None]], buffer_bytes: int
) -> None:
    for block in plan(Planner(buffer_bytes), [(bytes(size), group) for size, group in sizes]):
        assert len(block.lines) <= BLOCK_LINES
        assert block.size - len(block.requests[-1]) < BLOCK_BYTES


@given(requests)
def test_requests_of_one_group_lie_side_by_side_in_a_block(sizes: list[tuple[int, int | None]]) -> None:
    groups = [group for _, group in sizes]

    for block in plan(Planner(), [(bytes(size), group) for size, group in sizes]):
        inside = [groups[line] for line in block.lines]
        for group in {g for g in inside if g is not None}:
            first = inside.index(group)
            count = inside.count(group)
            assert inside[first : first + count] == [group] * count
            own = [line for line in block.lines if groups[line] == group]
            assert own == sorted(own)


@pytest.mark.parametrize(("count", "largest"), [(10, 10), (256, LEAST_LINES), (1_000, 62), (10_000, BLOCK_LINES)])
def test_a_small_batch_and_the_end_of_a_large_one_make_small_blocks(count: int, largest: int) -> None:
    planner = Planner()
    planner.expect(count)
    blocks = plan(planner, [(b"x", None) for _ in range(count)])
    sizes = [len(block.lines) for block in blocks]
    assert max(sizes) == largest
    assert sizes[:-1] == sorted(sizes[:-1], reverse=True)
    assert sizes[-1] <= LEAST_LINES
    assert sum(sizes) == count


def test_a_group_fills_blocks_of_its_own_though_others_come_between() -> None:
    blocks = plan(Planner(), [(b"x", n % 3) for n in range(3 * BLOCK_LINES)])

    assert [{line % 3 for line in block.lines} for block in blocks] == [{0}, {1}, {2}]


def test_a_planner_that_does_not_gather_keeps_the_order() -> None:
    blocks = plan(Planner(gathers=False), [(b"x", n % 3) for n in range(BLOCK_LINES + 1)])

    assert [block.lines for block in blocks] == [list(range(BLOCK_LINES)), [BLOCK_LINES]]


def test_small_groups_share_blocks() -> None:
    blocks = plan(Planner(), [(b"x", n // 2) for n in range(BLOCK_LINES)])

    assert [len(block.lines) for block in blocks] == [BLOCK_LINES]


def test_requests_without_a_group_keep_their_order() -> None:
    blocks = plan(Planner(), [(b"x", None) for _ in range(BLOCK_LINES + 1)])

    assert [block.lines for block in blocks] == [list(range(BLOCK_LINES)), [BLOCK_LINES]]


def test_what_is_held_is_bounded_in_bytes() -> None:
    planner = Planner(buffer_bytes=64 * KIB)
    held = 0
    for line in range(1_000):
        held += 4 * KIB - sum(block.size for block in planner.add(line, bytes(4 * KIB), str(line), line))
        assert held <= 64 * KIB + BLOCK_BYTES


def test_what_is_held_is_bounded_in_groups_however_short_the_requests_are() -> None:
    planner = Planner()
    held = 0
    for line in range(2 * MOST_GROUPS):
        held += 1 - sum(len(block.lines) for block in planner.add(line, b"x", str(line), line))

    assert held <= MOST_GROUPS + BLOCK_LINES


def test_the_group_that_grew_least_recently_is_let_go_first() -> None:
    planner = Planner(buffer_bytes=2 * BLOCK_BYTES)
    size = BLOCK_BYTES * 3 // 4
    order = [b for line, group in enumerate((0, 1, 0, 2)) for b in planner.add(line, bytes(size), "i", group)]

    assert [block.lines for block in order] == [[0, 2]]
    assert [block.lines for block in planner.finish()] == [[1], [3]]


def test_ids_are_signed_numbers_of_32_bits() -> None:
    ids = [i for block in plan(Planner(), [(b"x", None)] * 100) for i in block.ids]

    assert all(-(2**31) <= i < 2**31 for i in ids)
    assert len(set(ids)) == 100
