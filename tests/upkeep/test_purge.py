"""What is gone for its users goes from the disk, and nothing else does."""

from __future__ import annotations

from overnight.files.delete import delete
from overnight.upkeep.purge import Purge
from tests.batches.factory import Factory, lines


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
