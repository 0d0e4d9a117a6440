"""The order in which a batch's requests are stored, and so started: those that share a prompt stay together.

A model server computes a prompt that it has just seen much faster (its prefix cache). The planner therefore
gathers requests by what their prompts begin with while they stream past, and cuts them into blocks. Towards the end of
a batch these get smaller, so that the last of them keep all servers busy, and a small batch is not one server's alone.
It holds a bounded number of bytes: when there are too many, the group that grew least recently is let go.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from zlib import crc32

from overnight.domain.limits import BLOCK_BYTES, BLOCK_LINES, MIB

BUFFER_BYTES = 8 * MIB

LEAST_LINES = 16
BLOCKS_LEFT = 16
"""What is left of a batch makes so many blocks at least, unless they would be smaller than `LEAST_LINES`."""

MOST_GROUPS = 10_000
"""Groups held open at once: each takes about a kilobyte beside its requests, however short they are."""


@dataclass(slots=True)
class Block:
    """Requests that are stored and leased together, in the order in which they are to start."""

    lines: list[int] = field(default_factory=list)
    """0-based line numbers of the input."""
    requests: list[bytes] = field(default_factory=list)
    """The lines as they came, without their ends."""
    ids: list[int] = field(default_factory=list)
    """CRC-32 of each `custom_id`, as a signed number."""
    size: int = 0
    """Bytes of the requests."""

    def add(self, line: int, request: bytes, custom_id: str) -> None:
        self.lines.append(line)
        self.requests.append(request)
        self.ids.append(crc32(custom_id.encode()) - 2**31)
        self.size += len(request)

    def is_full(self, most_lines: int) -> bool:
        return len(self.lines) >= most_lines or self.size >= BLOCK_BYTES


class Planner:
    """Gathers requests into blocks: add each with its group, take the blocks that come out, then finish."""

    def __init__(self, buffer_bytes: int = BUFFER_BYTES, *, gathers: bool = True) -> None:
        """Without `gathers` requests stay in the order in which they come; the benchmark compares with that."""
        self._most = buffer_bytes
        self._gathers = gathers
        self._held = 0
        self._left: int | None = None
        self._most_lines = BLOCK_LINES
        self._groups: OrderedDict[int, Block] = OrderedDict()
        self._mixed = Block()

    def expect(self, requests: int) -> None:
        """There will be so many requests, or a few less; without this all blocks are large."""
        self._left = requests
        self._note_left(0)

    def _note_left(self, given: int) -> None:
        if self._left is not None:
            self._left -= given
            self._most_lines = min(BLOCK_LINES, max(LEAST_LINES, self._left // BLOCKS_LEFT))

    def add(self, line: int, request: bytes, custom_id: str, group: int | None) -> Iterator[Block]:
        """Take one request and yield the blocks that are full now. `group` None: shares nothing with others."""
        if group is None or not self._gathers:
            self._mixed.add(line, request, custom_id)
            self._held += len(request)
            if self._mixed.is_full(self._most_lines):
                yield self._let_go_mixed()
            return
        block = self._groups.get(group)
        if block is None:
            block = self._groups[group] = Block()
        else:
            self._groups.move_to_end(group)
        block.add(line, request, custom_id)
        self._held += len(request)
        if block.is_full(self._most_lines):
            del self._groups[group]
            self._held -= block.size
            self._note_left(len(block.lines))
            yield block
        while self._groups and (self._held > self._most or len(self._groups) > MOST_GROUPS):
            yield from self._scatter(self._groups.popitem(last=False)[1])

    def finish(self) -> Iterator[Block]:
        """Yield what is left, small groups side by side in shared blocks."""
        while self._groups:
            yield from self._scatter(self._groups.popitem(last=False)[1])
        if self._mixed.lines:
            yield self._let_go_mixed()

    def _scatter(self, group: Block) -> Iterator[Block]:
        """Move a group that will not fill a block of its own into the shared one, still side by side."""
        mixed = self._mixed
        is_too_much = len(mixed.lines) + len(group.lines) > self._most_lines or mixed.size + group.size > BLOCK_BYTES
        if mixed.lines and is_too_much:
            yield self._let_go_mixed()
            mixed = self._mixed
        mixed.lines += group.lines
        mixed.requests += group.requests
        mixed.ids += group.ids
        mixed.size += group.size
        if mixed.is_full(self._most_lines):
            yield self._let_go_mixed()

    def _let_go_mixed(self) -> Block:
        block, self._mixed = self._mixed, Block()
        self._held -= block.size
        self._note_left(len(block.lines))
        return block
