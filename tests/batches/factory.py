"""Makes what tests of batches need: files, batches in a certain state, answers. Each sets only what matters."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any
from uuid import UUID

from overnight.batches import create as creating
from overnight.batches import find
from overnight.batches.request import NewBatch
from overnight.batches.shape import BatchView
from overnight.domain import ids, result
from overnight.domain.limits import Limits
from overnight.domain.lines import CHECKS, FileCheck
from overnight.files.shape import StoredFile, of_row, problem_as_json
from overnight.store import accounts, answers, files, leases, zstd
from overnight.store.answers import ERROR, OUTPUT, Answer
from overnight.store.files import Chunk, Finding
from overnight.store.leases import LeasedBlock, Wanted
from overnight.store.life import Life
from overnight.store.pool import Session, Store
from overnight.store.served import Offer, serve
from overnight.upkeep.deps import Upkeep
from overnight.upkeep.seal import Seal
from overnight.upkeep.validate import Validate

CHAT = "/v1/chat/completions"


def line(custom_id: str, *, model: str = "m", url: str = CHAT, **body: Any) -> bytes:
    """A good line of an input file."""
    chat = {"messages": [{"role": "user", "content": "Say hello."}]} if url.endswith("/chat/completions") else {}
    body = {"model": model, **chat, **body}
    return json.dumps({"custom_id": custom_id, "method": "POST", "url": url, "body": body}).encode()


def lines(count: int, *, model: str = "m") -> bytes:
    """A good input file of `count` requests, named r0, r1, …"""
    return b"".join(line(f"r{i}", model=model) + b"\n" for i in range(count))


class Factory:
    """One deployment with one worker that serves the model `m`, known also as `nick`."""

    def __init__(self, store: Store, owner: int, life: Life) -> None:
        self.store = store
        self.owner = owner
        self.life = life
        self.limits = Limits()

    @property
    def deps(self) -> Upkeep:
        return Upkeep(self.store, self.life, self.limits)

    async def stranger(self) -> int:
        """Another account."""
        async with self.store.session() as session:
            no: int = await session.connection.fetchval(
                "INSERT INTO account (name, role) VALUES ('stranger', 'free') RETURNING no"
            )
        return no

    async def worker(self) -> Life:
        """Another worker, that serves the same."""
        life = Life(self.store)
        await life.begin()
        await serve_m(self.store, life)
        return life

    async def file(self, text: bytes, *, owner: int | None = None, checks: int = CHECKS) -> StoredFile:
        """Store an input file as an upload does: in pieces, with the findings of its check."""
        check = FileCheck(self.limits)
        check.feed(text)
        check.end()
        suspects = check.suspects()
        if suspects:
            confirm = check.confirm(suspects)
            confirm(text)
            confirm(b"")
        no = await files.begin(self.store, _new_id(), owner or self.owner, "requests.jsonl")
        cuts = range(0, len(text), 100_000)
        await files.append(
            self.store, no, [Chunk(i, len(text[i : i + 100_000]), zstd.compress(text[i : i + 100_000])) for i in cuts]
        )
        problems = [
            {**problem_as_json(problem), "line": problem.line} for problem in check.problems if checks == CHECKS
        ]
        count = check.problem_count if checks == CHECKS else 0
        finding = Finding(len(text), check.lines, hashlib.sha256(text).digest(), checks, count, problems)
        return of_row(await files.finish(self.store, no, finding, None))

    async def batch(self, text: bytes | None = None, *, owner: int | None = None, **given: Any) -> BatchView:
        """Create a batch of a new file; it waits to be checked."""
        file = await self.file(lines(3) if text is None else text, owner=owner)
        new = NewBatch(file.public_id, given.pop("endpoint", CHAT), **given)
        return await creating.create(self.store, self.limits, owner or self.owner, new)

    async def running(self, text: bytes | None = None, **given: Any) -> BatchView:
        """A batch that was checked and may run."""
        batch = await self.batch(text, **given)
        while await Validate(self.deps).round():
            pass
        return await self.look(batch)

    async def completed(self, text: bytes | None = None, **given: Any) -> BatchView:
        """A batch whose every request was answered well."""
        batch = await self.running(text, **given)
        await self.answer_all(batch)
        return await self.sealed(batch)

    async def sealed(self, batch: BatchView) -> BatchView:
        """Seal whatever is over, then look at a batch."""
        while await Seal(self.deps).round():
            pass
        return await self.look(batch)

    async def look(self, batch: BatchView) -> BatchView:
        return await find.get(self.store, batch.owner, batch.public_id)

    async def lease(self, batch: BatchView, life: Life | None = None, *, most: int = 100) -> list[LeasedBlock]:
        """Lease blocks of a batch."""
        wanted = Wanted(models=None, other_models=(), most=most, of_each=most, only=[batch.no])
        async with self.store.session() as session:
            return (await leases.lease(session, (life or self.life).no, wanted))[0]

    async def let_go(self, blocks: Sequence[LeasedBlock], life: Life | None = None, *, done: bool = False) -> None:
        """Give blocks back, or say that all their requests are answered."""
        async with self.store.session() as session:
            await leases.end_leases(
                session, (life or self.life).no, [(block.batch.no, block.seq, done) for block in blocks]
            )

    async def answer(
        self, batch: BatchView, numbers: Sequence[int], *, life: Life | None = None, kind: int = OUTPUT, size: int = 20
    ) -> list[Answer]:
        """Record answers of these lines in one flush, and return them."""
        found = [an_answer(batch.id, number, kind=kind, size=size) for number in numbers]
        async with self.store.session() as session:
            await answers.record(session, (life or self.life).no, [(batch.no, found)])
        return found

    async def answer_all(self, batch: BatchView, *, at_once: int = 100) -> None:
        """Answer every request of a running batch well."""
        blocks = await self.lease(batch)
        numbers = [number for block in blocks for number in block.lines]
        for i in range(0, len(numbers), at_once):
            await self.answer(batch, numbers[i : i + at_once])
        await self.let_go(blocks, done=True)

    async def close_window(self, batch: BatchView) -> None:
        """Let the window of a batch have ended a second ago."""
        await self.run("UPDATE batch SET expires_at = now() - interval '1 second' WHERE no = $1", batch.no)

    async def run(self, sql: str, *given: Any) -> None:
        async with self.store.session() as session:
            await session.connection.execute(sql, *given)

    async def columns(self, table: str) -> str:
        """The columns of a table that can be written, for an INSERT of copied rows."""
        names: str = await self.value(
            "SELECT string_agg(attname, ', ' ORDER BY attnum) FROM pg_attribute"
            " WHERE attrelid = $1::text::regclass AND attnum > 0 AND NOT attisdropped AND attgenerated = ''",
            table,
        )
        return names

    async def value(self, sql: str, *given: Any) -> Any:
        async with self.store.session() as session:
            return await session.connection.fetchval(sql, *given)

    async def stream(self, batch: BatchView, kind: int) -> bytes:
        """All that a result stream of a batch holds."""
        return b"".join([piece async for piece in answers.stream(self.store, batch.no, kind, 0, 2**62)])

    async def results(self, batch: BatchView) -> tuple[dict[str, Any], dict[str, Any]]:
        """The output and the error lines of a batch by custom id; each id once."""
        both = []
        for kind in (OUTPUT, ERROR):
            rows = [json.loads(row) for row in (await self.stream(batch, kind)).splitlines()]
            by_id = {row["custom_id"]: row for row in rows}
            assert len(by_id) == len(rows)
            both.append(by_id)
        return both[0], both[1]

    async def lock_wait(self) -> None:
        """Return when some connection waits for a lock that another one holds. Raises TimeoutError if none does."""
        async with asyncio.timeout(60):
            while not await self.value(
                "SELECT count(*) FROM pg_locks WHERE NOT granted"
                " AND pid IN (SELECT pid FROM pg_stat_activity WHERE datname = current_database())"
            ):
                await asyncio.sleep(0)

    @asynccontextmanager
    async def open_transaction(self) -> AsyncIterator[Session]:
        """A connection in the middle of a transaction, which is undone at the end."""
        session = await self.store.connect("test")
        transaction = session.connection.transaction()
        await transaction.start()
        try:
            yield session
        finally:
            await transaction.rollback()
            await session.connection.close()


async def make_factory(store: Store) -> Factory:
    """A deployment to make things in."""
    life = Life(store)
    await life.begin()
    await serve_m(store, life)
    return Factory(store, await accounts.local_owner(store), life)


async def serve_m(store: Store, life: Life) -> None:
    targets = ("chat", "completions", "embeddings")
    await serve(store, life.no, [Offer("m", ("nick",), 4096, targets), Offer("other", (), None, targets)])


def an_answer(batch: UUID, number: int, *, kind: int = OUTPUT, size: int = 20) -> Answer:
    """An answer of line `number`, whose request is named r<number>."""
    custom_id = f"r{number}"
    if kind == OUTPUT:
        body = json.dumps({"text": "x" * size}).encode()
        return Answer(
            number, result.answered(batch, number, custom_id, "req_1", 200, body), OUTPUT, tries=1, status=200
        )
    text = result.failed(batch, number, custom_id, "invalid_request", "No.", 400)
    return Answer(number, text, ERROR, tries=1, status=400, code="invalid_request")


def hours(count: float) -> timedelta:
    return timedelta(hours=count)


def _new_id() -> UUID:
    return ids.new(int.from_bytes(os.urandom(5), "big"))
