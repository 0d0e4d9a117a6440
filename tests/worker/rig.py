"""Batches made row by row, and a worker whose rounds the tests call."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from overnight.catalog.route import Route
from overnight.catalog.routes import Routes
from overnight.catalog.upstream_route import UpstreamRoute
from overnight.domain import ids
from overnight.domain.limits import Limits
from overnight.loops import Bell
from overnight.store import zstd
from overnight.store.answers import ERROR, OUTPUT, stream
from overnight.store.life import Life
from overnight.store.pool import Store
from overnight.worker.worker import Worker
from tests.scripted_upstream import Upstream

CHAT = "/v1/chat/completions"


def request(name: str, model: str = "m", **body: Any) -> bytes:
    """A line whose prompt is its custom_id."""
    body = {"model": model, "messages": [{"role": "user", "content": name}], **body}
    return json.dumps({"custom_id": name, "method": "POST", "url": CHAT, "body": body}).encode()


def names(count: int) -> set[str]:
    """r0, r1, …"""
    return {f"r{i}" for i in range(count)}


async def add_batch(
    store: Store,
    requests: Sequence[bytes],
    *,
    owner: int = 1,
    model: str = "m",
    of_each: int = 256,
    window: timedelta | None = timedelta(hours=24),
    defaults: dict[str, Any] | None = None,
) -> int:
    """A batch that may run, in blocks of `of_each` requests; returns its number."""
    async with store.transaction() as session:
        connection = session.connection
        no: int = await connection.fetchval("SELECT next_batch_no(now())")
        await connection.execute(
            "INSERT INTO batch (no, id, owner, target, endpoint, source, status, model, completion_window, retention,"
            " total, defaults, expires_at, in_progress_at)"
            " VALUES ($1, $2, $3, 'chat', $4, 'file', 'in_progress', $5, '24h', '7 days', $6, $7, now() + $8, now())",
            no, ids.new(no % 2**40), owner, CHAT, model, len(requests), defaults or {}, window,
        )  # fmt: skip
        for seq, first in enumerate(range(0, len(requests), of_each)):
            part = list(requests[first : first + of_each])
            lines = list(range(first, first + len(part)))
            await connection.execute(
                "INSERT INTO block (batch, seq, model, state, count, lines, ids, data)"
                " VALUES ($1, $2, $3, 'ready', $4, $5, $5, $6)",
                no, seq, model, len(part), lines, zstd.compress(b"\n".join(part)),
            )  # fmt: skip
    return no


async def add_owner(store: Store, name: str) -> int:
    """Another account."""
    async with store.session() as session:
        no: int = await session.connection.fetchval(
            "INSERT INTO account (name, role) VALUES ($1, 'free') RETURNING no", name
        )
    return no


async def value(store: Store, sql: str, *given: object) -> Any:
    """One value of the database."""
    async with store.session() as session:
        return await session.connection.fetchval(sql, *given)


async def values(store: Store, sql: str, *given: object) -> list[Any]:
    """The rows of a query."""
    async with store.session() as session:
        rows: list[Any] = await session.connection.fetch(sql, *given)
    return rows


async def results(store: Store, batch: int) -> dict[str, dict[str, Any]]:
    """All result lines of a batch by custom_id, checked against the answers and the counters.

    Fails where a request has more than one line, or the streams, answers and counters disagree.
    """
    async with store.session() as session:
        row = await session.connection.fetchrow("SELECT * FROM batch WHERE no = $1", batch)
        answers = await session.connection.fetch("SELECT * FROM answer WHERE batch = $1", batch)
    found: dict[str, dict[str, Any]] = {}
    for kind, name, count in ((OUTPUT, "output", row["completed"]), (ERROR, "error", row["failed"])):
        text = b"".join([piece async for piece in stream(store, batch, kind, 0, 2**40)])
        lines = text.splitlines()
        assert len(text) == row[f"{name}_bytes"]
        assert len(lines) == row[f"{name}_lines"] == count
        for line in lines:
            parsed = json.loads(line)
            assert parsed["custom_id"] not in found
            found[parsed["custom_id"]] = parsed
    assert len(answers) == len(found)
    assert row["input_tokens"] == sum(a["input_tokens"] for a in answers)
    return found


@dataclass
class Rig:
    """A worker on a route to an upstream."""

    store: Store
    life: Life
    worker: Worker
    upstream: Upstream
    routes: Routes
    only: int | None = None
    committed: list[int] = field(default_factory=list)

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Let the worker work until something is so."""
        async with asyncio.timeout(60):
            while not is_so():
                if not await self.worker.round() and not is_so():
                    await self.worker.bell.wait(0.02)

    async def finish(self) -> None:
        """Let the worker work until there is nothing left that it could run."""
        while True:
            await self.until(lambda: self.worker.is_idle)
            if not await value(self.store, _RUNNABLE, self.only):
                return
            self.worker.wake()
            await self.worker.round()


_RUNNABLE = """
    SELECT count(*) FROM block JOIN batch ON no = batch
    WHERE state = 'ready' AND status = 'in_progress' AND paused IS NULL AND (expires_at IS NULL OR expires_at > now())
        AND ($1::bigint IS NULL OR batch = $1)
"""


@asynccontextmanager
async def rigged(
    store: Store,
    upstream: Upstream,
    *,
    limits: Limits | None = None,
    slots: int = 32,
    clock: Callable[[], float] = lambda: 0.0,
    route: Route | None = None,
    only: int | None = None,
    begun: bool = True,
) -> AsyncIterator[Rig]:
    """A worker that has told the deployment what it serves. It is dropped at the end as a killed one would be.

    The clock by which it knows how old its heartbeat is stands still: it has one when the test says so.
    """
    limits = limits or Limits(request_seconds=60.0)
    life = Life(store, slots, clock)
    life.capped = lambda: limits.per_model is not None
    if begun:
        await life.begin()
    routes = Routes([route or UpstreamRoute(upstream.url, slots=slots, most_reply_bytes=lambda: limits.result_bytes)])
    await routes.round(store, life)
    committed: list[int] = []
    worker = Worker(
        store,
        life,
        limits,
        routes,
        bell=Bell(),
        only=lambda: None if only is None else [only],
        on_committed=committed.append,
    )
    try:
        yield Rig(store, life, worker, upstream, routes, only, committed)
    finally:
        await worker.close()
        await routes.close()
