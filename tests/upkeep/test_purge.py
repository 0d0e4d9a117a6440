"""What is gone for its users goes from the disk, and nothing else does."""

from __future__ import annotations

import dataclasses
from itertools import count

import pytest

from overnight.batches.delete import delete as delete_batch
from overnight.batches.shape import BatchView
from overnight.domain.errors import BatchNotFound, FileNotFound
from overnight.files import find as find_file
from overnight.files.delete import delete
from overnight.store import blocks, deletion, rolls
from overnight.upkeep.deps import Upkeep
from overnight.upkeep.purge import Purge
from tests.batches.factory import Factory, lines
from tests.upkeep.fuse import Crash, Fuse, FusedStore
from tests.upkeep.orphans import no_orphans, over


async def purged(make: Factory) -> None:
    while await Purge(make.deps).round():
        pass


async def test_deleted_and_expired_files_go_and_their_batches_stay(make: Factory) -> None:
    batch = await make.completed(lines(2))
    kept, gone = await make.file(lines(2)), await make.file(lines(2))
    await delete(make.store, make.owner, gone.public_id)
    await make.run("UPDATE file SET expires_at = now() - interval '1 hour' WHERE no = $1", kept.no)
    await purged(make)
    await make.run("UPDATE file SET touched_at = now() - interval '1 day' WHERE state = 'deleted'")
    await purged(make)
    assert await make.value("SELECT count(*) FROM file WHERE no = ANY ($1)", [kept.no, gone.no]) == 0
    assert await make.value("SELECT count(DISTINCT file) FROM file_chunk") == 1
    assert (await make.look(batch)) == batch
    assert len(await make.stream(batch, 0)) > 0


async def test_workers_that_died_long_ago_are_forgotten(make: Factory) -> None:
    lately, long_ago = await make.worker(), await make.worker()
    await make.run("UPDATE worker SET dead_at = now() WHERE no = $1", lately.no)
    await make.run("UPDATE worker SET dead_at = now() - interval '31 days' WHERE no = $1", long_ago.no)
    assert await Purge(make.deps).round() is True
    assert await Purge(make.deps).round() is False
    assert await make.value("SELECT array_agg(no ORDER BY no) FROM worker") == [make.life.no, lately.no]


TABLES = ("block", "roll", "attempt", "segment", "answer", "call")


async def rows(make: Factory, batch: BatchView) -> dict[str, int]:
    """Table → rows of a batch."""
    return {t: await make.value(f"SELECT count(*) FROM {t} WHERE batch = $1", batch.no) for t in TABLES}


async def with_every_kind_of_row(make: Factory, size: int = 5) -> BatchView:
    batch = await make.completed(lines(size))
    for number in range(3):
        await make.run("INSERT INTO attempt VALUES ($1, 1, $2, '{0}', '{0}')", batch.no, number)
        await make.run(
            "INSERT INTO call (batch, line, worker, try, took_ms, code, message)"
            " VALUES ($1, 0, 1, $2, 5, 'upstream_error', 'No.')",
            *(batch.no, number),
        )
    assert 0 not in (await rows(make, batch)).values()
    return batch


async def test_rows_of_a_deleted_batch_go_once_no_download_can_be_under_way(make: Factory) -> None:
    gone, kept = await with_every_kind_of_row(make), await with_every_kind_of_row(make)
    before = await rows(make, kept)
    await delete_batch(make.store, make.owner, gone.public_id)
    await purged(make)
    assert await rows(make, gone) == before
    await make.run("UPDATE deleted_batch SET rows_go_at = now()")
    await purged(make)
    assert await rows(make, gone) == dict.fromkeys(TABLES, 0)
    assert await rows(make, kept) == before
    assert await make.value("SELECT count(*) FROM deleted_batch") == 1
    await make.run("UPDATE deleted_batch SET deleted_at = now() - interval '29 days'")
    await purged(make)
    assert await make.value("SELECT count(*) FROM deleted_batch") == 1
    await make.run("UPDATE deleted_batch SET deleted_at = now() - interval '31 days'")
    await purged(make)
    assert await make.value("SELECT count(*) FROM deleted_batch") == 0


async def test_a_removal_in_pieces_goes_on_wherever_it_was_interrupted(
    make: Factory, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module, name in (
        (deletion, "SEGMENTS_AT_ONCE"), (deletion, "ROWS_AT_ONCE"), (deletion, "ATTEMPTS_AT_ONCE"),
        (blocks, "DELETED_AT_ONCE"), (rolls, "DELETED_AT_ONCE"),
    ):  # fmt: skip
        monkeypatch.setattr(module, name, 2)
    batch = await with_every_kind_of_row(make)
    await delete_batch(make.store, make.owner, batch.public_id)
    await make.run("UPDATE deleted_batch SET rows_go_at = now()")
    for steps in count(1, 5):
        try:
            fused = FusedStore(make.store, Fuse(steps))
            while await deletion.remove_some_rows(fused):
                pass
            break
        except Crash:
            pass
        await no_orphans(make, after=f"interrupted at step {steps}")
    assert steps > 20
    await over(make)
    await purged(make)
    await no_orphans(make, settled=True)
    assert await rows(make, batch) == dict.fromkeys(TABLES, 0)


async def test_a_batch_is_deleted_when_its_own_retention_is_over(make: Factory) -> None:
    short, long = await make.completed(lines(1)), await make.completed(lines(1), output_expires_after=2_592_000)
    running = await make.running(lines(1))
    await make.run("UPDATE batch SET ended_at = ended_at - interval '167 hours' WHERE ended_at IS NOT NULL")
    await purged(make)
    await make.look(short)
    await make.run("UPDATE batch SET ended_at = ended_at - interval '2 hours' WHERE ended_at IS NOT NULL")
    await purged(make)

    with pytest.raises(BatchNotFound):
        await make.look(short)
    assert short.output_file_id is not None
    with pytest.raises(FileNotFound):
        await find_file.get(make.store, make.owner, f"file-{short.output_file_id.hex}")
    assert (await make.look(long)).id == long.id
    assert (await make.look(running)) is not None
    assert (await rows(make, short))["answer"] == 1


async def test_what_is_due_is_found_by_an_index(make: Factory) -> None:
    async with make.store.transaction() as session:
        await session.connection.execute("SET LOCAL enable_seqscan = off")
        sql = deletion._SQL["delete_batches_after_retention"]
        given = sql.arguments({"most": 100, "rows_kept": deletion.ROWS_KEPT_FOR_THEIR_DAY})
        plan = await session.connection.fetch("EXPLAIN " + sql.sql, *given)
    assert any("batch_retained" in row[0] for row in plan)


async def test_two_processes_delete_what_is_due_once(make: Factory) -> None:
    await make.completed(lines(1))
    await make.run("UPDATE batch SET ended_at = ended_at - interval '30 days'")
    async with make.open_transaction() as session:
        await session.connection.execute("SELECT FROM batch FOR UPDATE")
        assert await Purge(Upkeep(make.store, make.life, make.limits)).round() is False
    assert len(await deletion.delete_after_retention(make.store)) == 1
    assert await deletion.delete_after_retention(make.store) == []


async def test_while_batches_are_turned_off_nothing_is_removed(make: Factory) -> None:
    batch = await make.completed(lines(2))
    await make.run("UPDATE batch SET ended_at = now() - interval '8 days' WHERE no = $1", batch.no)
    await make.run("UPDATE file SET expires_at = now() - interval '1 hour' WHERE id = $1", batch.input_file_id)
    make.limits = dataclasses.replace(make.limits, enabled=False)
    assert await Purge(make.deps).round() is False
    assert await make.look(batch)
    make.limits = dataclasses.replace(make.limits, enabled=True)
    await purged(make)
    with pytest.raises(BatchNotFound):
        await make.look(batch)
