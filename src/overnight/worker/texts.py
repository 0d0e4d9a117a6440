"""Reads the texts of requests again that gave them back while they waited."""

from __future__ import annotations

from collections.abc import Iterable

from overnight.domain.limits import MIB
from overnight.store import blocks
from overnight.store.pool import Session
from overnight.worker.flow import Flow
from overnight.worker.held import Held
from overnight.worker.request import Request

READ_BYTES = 32 * MIB
"""Of texts that were read again, of requests of which the turn has not come: shared by the flows that have any to read.
One always fits."""
BLOCKS_AT_ONCE = 8


class Texts:
    """Gives requests whose next try is due their texts, a few at a time, so that they take no room from others."""

    def __init__(self, held: Held) -> None:
        self._held = held

    async def round(self, session: Session) -> bool:
        """Let requests that are due have a turn again; says whether there were any."""
        flows = [flow for flow in self._held.flows.values() if flow.waiting.unread]
        found = False
        for flow in flows:
            due = _next(flow, READ_BYTES // len(flows))
            texts = await self.read(session, due)
            for request in due:
                if flow.waiting.unread and flow.waiting.unread[0] is request:
                    self._take_up(flow, texts.get(request))
            found |= bool(due)
        return found

    async def read(self, session: Session, requests: Iterable[Request]) -> dict[Request, bytes]:
        """The texts of requests, of which some may be held no more; those of deleted batches are missing."""
        worker = self._held.worker
        texts: dict[Request, bytes] = {}
        by_batch: dict[int, list[Request]] = {}
        for request in requests:
            by_batch.setdefault(request.block.source.batch.no, []).append(request)
        for no, of_batch in by_batch.items():
            found = await blocks.read(session, no, sorted({request.block.seq for request in of_batch}))
            self._held.check(worker)
            texts.update((request, found[request.line]) for request in of_batch if request.line in found)
        return texts

    def _take_up(self, flow: Flow, text: bytes | None) -> None:
        request = flow.waiting.unread.popleft()
        request.block.source.waiting -= 1
        if text is None:
            self._held.drop(request)
            return
        self._held.take_text(request, text)
        request.is_read_again = True
        flow.waiting.read_bytes += request.size
        self._held.put_back(request)


def _next(flow: Flow, part: int) -> list[Request]:
    """Those that have been due for longest, of few blocks and up to so many bytes with what was read before."""
    chosen: list[Request] = []
    of_blocks = set()
    size = flow.waiting.read_bytes
    for request in flow.waiting.unread:
        of_blocks.add(request.block)
        size += request.size
        if len(of_blocks) > BLOCKS_AT_ONCE or (size > part and size > request.size):
            break
        chosen.append(request)
    return chosen
