"""Writes the blocks and the roll of a batch while it is checked; nothing can be leased before the batch starts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from overnight.domain.plan import Block
from overnight.store import batches, blocks, rolls
from overnight.store.life import hold_fence
from overnight.store.pool import Session, Store

GROUP_BLOCKS = 32
GROUP_BYTES = 4 * 1024 * 1024
"""Blocks are written together up to either; a cancel is noticed once a group."""


class Lost(Exception):
    """The batch is not in this worker's hands any more: it was cancelled, or ended by somebody else."""


class Ingest:
    """One batch that this worker checks: holds at most one group of compressed blocks."""

    def __init__(self, store: Store, worker: int, batch: int) -> None:
        self._store = store
        self._worker = worker
        self._batch = batch
        self._seq = 0
        self._group: list[blocks.Packed] = []
        self._bytes = 0
        self._roll = rolls.Writer()

    @asynccontextmanager
    async def held(self) -> AsyncIterator[Session]:
        """A transaction in which this worker lives and the batch is in its check. Raises Fenced or Lost."""
        async with self._store.transaction() as session:
            await hold_fence(session, self._worker)
            if not await batches.hold_validating(session, self._batch, self._worker):
                raise Lost
            yield session

    async def clear(self) -> None:
        """Remove what a check that was interrupted, or found problems, has left behind; in bounded pieces."""
        self._group.clear()
        self._roll.clear()
        self._bytes = self._seq = 0
        more = True
        while more:
            async with self.held() as session:
                more = await blocks.delete_some(session, self._batch)
                more |= await rolls.delete_some(session, self._batch)

    def name(self, line: int, custom_id: str) -> None:
        """Put a request on the roll; they come in the order of their lines, each before its block."""
        self._roll.add(line, custom_id)

    async def add(self, block: Block, model: str) -> None:
        """Take a block, and write the group when it is large enough."""
        packed = blocks.pack(block)
        self._group.append(packed)
        self._bytes += len(packed.data)
        if len(self._group) >= GROUP_BLOCKS or self._bytes >= GROUP_BYTES:
            async with self.held() as session:
                await self._write(session, model)
        else:
            await asyncio.sleep(0)

    async def start(self, model: str, total: int) -> None:
        """Write what is left and let the batch run, in one transaction."""
        async with self.held() as session:
            await self._write(session, model)
            await self._roll.write(session, self._batch, whole=True)
            if not await batches.start_if_validated(session, self._batch, self._worker, model, total):
                raise Lost

    async def _write(self, session: Session, model: str) -> None:
        if self._group:
            await blocks.write(session, self._batch, model, self._seq, self._group)
            self._seq += len(self._group)
            self._group.clear()
            self._bytes = 0
            await self._roll.write(session, self._batch)
