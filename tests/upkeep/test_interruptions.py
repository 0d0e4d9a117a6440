"""A check or a sealing that is interrupted at any instruction goes on and ends in the same bytes and counts."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from datetime import timedelta
from itertools import count
from typing import Any

import pytest

from overnight.batches import create as creating
from overnight.batches.cancel import cancel
from overnight.batches.request import NewBatch
from overnight.batches.shape import BatchView
from overnight.domain.states import Status
from overnight.files.shape import StoredFile
from overnight.store import blocks
from overnight.store.answers import ERROR, OUTPUT
from overnight.store.life import Life, declare_dead
from overnight.upkeep import ingest
from overnight.upkeep.deps import Upkeep
from overnight.upkeep.expire import Expire
from overnight.upkeep.seal import Seal
from overnight.upkeep.validate import Validate
from tests.batches.factory import CHAT, Factory, line, lines
from tests.upkeep.fuse import Crash, Fuse, FusedStore
from tests.upkeep.orphans import no_orphans

Rounds = type[Validate] | type[Seal]


async def interrupt(make: Factory, rounds: Rounds, steps: int, *, dies: bool) -> bool:
    """Let a worker crash after so many steps, then the work be done; False where there were not so many steps.

    A worker that dies is declared dead and another goes on; one that lives comes again by itself.
    """
    life = await make.worker()
    fuse = Fuse(steps)
    try:
        await rounds(Upkeep(FusedStore(make.store, fuse), life, make.limits)).round()
    except Crash:
        pass
    if dies:
        await die(make, life)
        life = make.life
    while await rounds(Upkeep(make.store, life, make.limits)).round():
        pass
    await make.run("DELETE FROM worker WHERE no <> $1", make.life.no)
    return fuse.blown


async def die(make: Factory, life: Life) -> None:
    await make.run("UPDATE beat SET at = now() - interval '1 hour' WHERE worker = $1", life.no)
    assert await declare_dead(make.store, life.no, timedelta(seconds=10))


async def at_each_step(
    make: Factory,
    rounds: Rounds,
    begin: Callable[[], Awaitable[BatchView]],
    outcome: Callable[[BatchView], Awaitable[Any]],
    dies: bool,
) -> int:
    """Interrupt at every step, compare what comes of it with what comes without; return how many steps there were."""
    batch = await begin()
    while await rounds(make.deps).round():
        pass
    expected = await outcome(await make.look(batch))
    for steps in count():
        batch = await begin()
        blown = await interrupt(make, rounds, steps, dies=dies)
        assert await outcome(await make.look(batch)) == expected, f"interrupted at step {steps}"
        if not blown:
            await no_orphans(make)
            return steps
    raise AssertionError


async def created(make: Factory, file: StoredFile) -> BatchView:
    return await creating.create(make.store, make.limits, make.owner, NewBatch(file.public_id, CHAT))


async def ended(make: Factory, batch: BatchView) -> None:
    """Bring a batch to its end, so that its file can be used again."""
    await cancel(make.store, make.owner, batch.public_id)
    await make.sealed(batch)


@pytest.mark.parametrize("dies", [True, False])
async def test_a_check_interrupted_anywhere_loses_and_doubles_nothing(
    make: Factory, monkeypatch: pytest.MonkeyPatch, dies: bool
) -> None:
    monkeypatch.setattr(ingest, "GROUP_BLOCKS", 2)
    file = await make.file(lines(1_200))

    async def outcome(batch: BatchView) -> Any:
        async with make.store.session() as session:
            rows = await session.connection.fetch(
                "SELECT seq, model, state, worker, count, lines, ids, data FROM block WHERE batch = $1 ORDER BY seq",
                batch.no,
            )
        assert sorted(number for row in rows for number in row["lines"]) == list(range(1_200))
        found = (batch.status, batch.model, batch.counts, [tuple(row) for row in rows])
        await ended(make, batch)
        return found

    steps = await at_each_step(make, Validate, lambda: created(make, file), outcome, dies)
    assert steps > 35, steps


@pytest.mark.parametrize("dies", [True, False])
async def test_a_refusal_interrupted_anywhere_tells_the_same_and_leaves_no_block(
    make: Factory, monkeypatch: pytest.MonkeyPatch, dies: bool
) -> None:
    monkeypatch.setattr(ingest, "GROUP_BLOCKS", 1)
    file = await make.file(lines(600) + line("last", model="other"))

    async def outcome(batch: BatchView) -> Any:
        assert batch.status is Status.FAILED
        assert await make.value("SELECT count(*) FROM block") == 0
        return batch.errors, batch.error, batch.counts

    steps = await at_each_step(make, Validate, lambda: created(make, file), outcome, dies)
    assert steps > 40


async def completed(make: Factory, file: StoredFile) -> BatchView:
    """Every request answered, one in four with an error."""
    batch = await running(make, file)
    held = await make.lease(batch)
    numbers = [number for block in held for number in block.lines]
    await make.answer(batch, [n for n in numbers if n % 4])
    await make.answer(batch, [n for n in numbers if not n % 4], kind=ERROR)
    await make.let_go(held, done=True)
    return batch


async def cancelled(make: Factory, file: StoredFile) -> BatchView:
    """A few requests answered, the rest cancelled."""
    batch = await half_done(make, file)
    await cancel(make.store, make.owner, batch.public_id)
    return batch


async def expired(make: Factory, file: StoredFile) -> BatchView:
    """A few requests answered, some tried, the rest expired."""
    batch = await half_done(make, file)
    await make.close_window(batch)
    await Expire(make.deps).round()
    return batch


async def running(make: Factory, file: StoredFile) -> BatchView:
    batch = await created(make, file)
    await Validate(make.deps).round()
    return batch


async def half_done(make: Factory, file: StoredFile) -> BatchView:
    batch = await running(make, file)
    held = await make.lease(batch, most=2)
    await make.answer(batch, held[0].lines[:9])
    await make.run(
        "INSERT INTO attempt (batch, worker, no, blocks, lines) VALUES ($1, 1, 1, '{0}', $2)",
        *(batch.no, held[0].lines[:30]),
    )
    await make.run(
        "INSERT INTO call (batch, line, worker, try, took_ms, status, code, message)"
        " SELECT $1, l, 1, 1, 1, 503, 'service_unavailable', 'Full.' FROM unnest($2::integer[]) AS l",
        *(batch.no, held[0].lines[9:20]),
    )
    await make.let_go(held)
    return batch


@pytest.mark.parametrize("dies", [True, False])
@pytest.mark.parametrize("begin", [completed, cancelled, expired])
async def test_a_sealing_interrupted_anywhere_ends_in_the_same_bytes(
    make: Factory,
    monkeypatch: pytest.MonkeyPatch,
    begin: Callable[[Factory, StoredFile], Awaitable[BatchView]],
    dies: bool,
) -> None:
    monkeypatch.setattr(blocks, "CLOSED_AT_ONCE", 1)
    file = await make.file(lines(600))

    async def outcome(batch: BatchView) -> Any:
        assert batch.counts.unanswered == 0
        files = []
        for kind, file_id in ((OUTPUT, batch.output_file_id), (ERROR, batch.error_file_id)):
            text = await make.stream(batch, kind)
            digest = await make.value(
                "SELECT sha256 FROM file WHERE batch = $1 AND kind = $2 AND id = $3", batch.no, kind, file_id
            )
            assert digest == hashlib.sha256(text).digest()
            files.append(text.replace(batch.id.hex[:24].encode(), b"-"))
        assert await make.value("SELECT count(*) FROM answer WHERE batch = $1", batch.no) == 600
        return batch.status, batch.counts, files

    steps = await at_each_step(make, Seal, lambda: begin(make, file), outcome, dies)
    assert steps > (15 if begin is completed else 30)


@pytest.mark.parametrize("dies", [True, False])
async def test_a_batch_cancelled_while_it_was_checked_ends_without_blocks(
    make: Factory, monkeypatch: pytest.MonkeyPatch, dies: bool
) -> None:
    monkeypatch.setattr(ingest, "GROUP_BLOCKS", 1)
    monkeypatch.setattr(blocks, "DELETED_AT_ONCE", 1)
    file = await make.file(lines(800))

    async def begin() -> BatchView:
        batch = await created(make, file)
        life = await make.worker()
        fused = FusedStore(make.store, Fuse(38))
        with pytest.raises(Crash):
            await Validate(Upkeep(fused, life, make.limits)).round()
        assert await make.value("SELECT count(*) FROM block") == 2
        await die(make, life)
        await cancel(make.store, make.owner, batch.public_id)
        return batch

    async def outcome(batch: BatchView) -> Any:
        assert await make.value("SELECT count(*) FROM block") == 0
        return batch.status, batch.counts, batch.output_file_id, batch.error_file_id

    assert await at_each_step(make, Seal, begin, outcome, dies) > 15
