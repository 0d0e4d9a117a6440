"""Fixes the final state of batches whose work is over, and their result files."""

from __future__ import annotations

import asyncio
import hashlib
from uuid import UUID

from overnight.domain import events, ids, unanswered
from overnight.domain.states import Status
from overnight.store import answers, batches, blocks, files, leases, rolls
from overnight.store.answers import ERROR, OUTPUT, Fenced
from overnight.store.blocks import Closed
from overnight.store.life import hold_fence
from overnight.store.pool import Row, Session, Store
from overnight.upkeep.deps import Upkeep
from overnight.upkeep.ingest import Lost
from overnight.upkeep.leftovers import LastError, Leftovers, answers_for
from overnight.upkeep.put_off import PutOff

LONG_PIECE = 256 * 1024
"""Bytes that take longer to hash than other work should wait."""


class Seal:
    """Takes one batch at a time; a sealing that was interrupted goes on where it was."""

    def __init__(self, deps: Upkeep) -> None:
        self._deps = deps
        self._put_off = PutOff()

    async def round(self) -> bool:
        """Seal one batch, if one is over."""
        store, worker = self._deps.store, self._deps.life.no
        row = await batches.claim_over(store, worker, self._deps.only(), skipped=self._put_off.batches())
        if row is None:
            return False
        try:
            with self._put_off.unless_done(row["no"]):
                await _Sealing(store, worker, row).run()
        except Lost:
            pass
        except Fenced:
            return False  # the next heartbeat begins a new life
        return True


class _Sealing:
    """One batch while it is sealed. Every step is a transaction that leaves less to do."""

    def __init__(self, store: Store, worker: int, row: Row) -> None:
        self._store = store
        self._worker = worker
        self._row = row
        self._no: int = row["no"]

    async def run(self) -> None:
        """Raises Lost or Fenced where the batch is not ours any more."""
        if not self._has_names:
            while await self._delete_some_blocks():
                pass
        elif self._row["ends_as"] is not None:
            while await self._answer_some():
                pass
        await self._end()

    @property
    def _has_names(self) -> bool:
        """Whether its requests can be answered: those of a file can't before the whole file was found good."""
        return self._row["in_progress_at"] is not None or self._row["source"] == "direct"

    async def _held(self, session: Session) -> Row:
        await hold_fence(session, self._worker)
        row = await batches.hold_finalizing(session, self._no, self._worker)
        if row is None:
            raise Lost
        return row

    async def _delete_some_blocks(self) -> bool:
        """What the check had stored before the batch was cancelled: none of it ran, and none of it has a name."""
        async with self._store.transaction() as session:
            await self._held(session)
            more = await blocks.delete_some(session, self._no)
            return await rolls.delete_some(session, self._no) or more

    async def _answer_some(self) -> bool:
        """Write the error lines of a few blocks; False when no block is left that could be leased."""
        async with self._store.transaction() as session:
            await self._held(session)
            closed = await blocks.close_some(session, self._no)
            for block in closed:
                left = await self._look_at(session, block)
                found = answers_for(self._row["id"], Status(self._row["ends_as"]), left)
                if found:
                    await answers.record(session, self._worker, [(self._no, found)])
        return bool(closed)

    async def _look_at(self, session: Session, block: Closed) -> Leftovers:
        requests = blocks.unpack(block.data)
        if not block.was_leased:
            return Leftovers(block.lines, requests, (), {}, {})
        answered = await leases.answered(session, self._no, block.lines)
        past = await leases.past(session, self._no, block.seq, block.lines)
        tries = {line: known.sent - known.uncounted for line, known in past.items()}
        rows = await answers.last_errors(session, self._no, block.lines)
        errors = {row["line"]: LastError(row["code"], row["message"], row["status"]) for row in rows}
        return Leftovers(block.lines, requests, answered, tries, errors)

    async def _end(self) -> None:
        """Hash the two streams, then make the files and the final state in one transaction.

        A direct batch has no files: its results are read from the streams.
        """
        async with self._store.transaction() as session:
            before = await self._held(session)
        if self._has_names and before["unanswered"]:
            return  # a lease came through just before the end: its block is given back, then sealing goes on
        hashes = await self._hashes(before)
        why = await self._why(before)
        async with self._store.transaction() as session:
            held = await self._held(session)
            if (held["output_bytes"], held["error_bytes"]) != (before["output_bytes"], before["error_bytes"]):
                return  # results came in since: the next round seals with them
            output = await self._open(session, held, OUTPUT, hashes)
            error = await self._open(session, held, ERROR, hashes)
            if why is not None:
                await batches.explain_if_unexplained(session, self._no, self._worker, *why)
            if not await batches.end_if_sealed(session, held, self._worker, output, error):
                raise Lost
        events.tell(
            "batch_ended",
            batch=ids.show(ids.BATCH, held["id"]),
            status=held["ends_as"] or "completed",
            completed=held["completed"],
            failed=held["failed"],
        )

    async def _hashes(self, held: Row) -> dict[int, bytes]:
        if held["source"] == "direct":
            return {}
        return {
            OUTPUT: await _hash(self._store, self._no, OUTPUT, held["output_bytes"]),
            ERROR: await _hash(self._store, self._no, ERROR, held["error_bytes"]),
        }

    async def _why(self, held: Row) -> tuple[str, str] | None:
        """A code and a sentence for the batch as a whole; None where it needs none.

        One that expired has a reason for every request without a response; another one for having no response at all.
        """
        expired = held["ends_as"] == Status.EXPIRED
        if not held["failed"] or held["ends_as"] == Status.CANCELLED or (held["completed"] and not expired):
            return None
        codes = await answers.count_codes(self._store, self._no, unanswered.MOST_CODES)
        if not codes:
            return None
        if expired:
            return unanswered.why_expired(codes, held["failed"], held["completed"] + held["failed"])
        return unanswered.why(codes, held["failed"])

    async def _open(self, session: Session, held: Row, kind: int, hashes: dict[int, bytes]) -> UUID | None:
        name = "output" if kind == OUTPUT else "error"
        if kind not in hashes or not held[f"{name}_lines"]:
            return None
        return await files.open_output(
            session,
            held["owner"],
            self._no,
            held["id"],
            kind,
            held[f"{name}_bytes"],
            held[f"{name}_lines"],
            hashes[kind],
            held["results_expire_at"],
        )


async def _hash(store: Store, batch: int, kind: int, size: int) -> bytes:
    """SHA-256 of a result stream. Raises ValueError where it is shorter than its batch says."""
    digest, found = hashlib.sha256(), 0
    async for piece in answers.stream(store, batch, kind, 0, size):
        found += len(piece)
        if len(piece) > LONG_PIECE:
            await asyncio.to_thread(digest.update, piece)
        else:
            digest.update(piece)
    if found != size:
        raise ValueError(f"stream {kind} of batch {batch} has {found} of {size} bytes")
    return digest.digest()
