"""The incremental files hold what is committed, whole lines only, and in the end the output file's bytes."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from overnight.batches.cancel import cancel
from overnight.batches.delete import delete
from overnight.batches.shape import BatchView
from overnight.domain import events, ids
from overnight.store import deletion
from overnight.store.answers import ERROR, OUTPUT
from overnight.upkeep import follow, incremental, unfollow
from overnight.upkeep.follow import Follow
from tests.batches.factory import Factory, lines
from tests.upkeep.fuse import Crash, Fuse, FusedStore


class Host:
    """One host whose process follows the batches of a deployment, and can be started again."""

    def __init__(self, make: Factory, folder: Path) -> None:
        self.make = make
        self.folder = folder
        self.deps = dataclasses.replace(make.deps, incremental_dir=folder)
        self.following = Follow(self.deps)

    async def look(self) -> None:
        while await self.following.round():
            pass

    def restart(self) -> None:
        self.following.close()
        self.following = Follow(self.deps)

    def output(self, batch: BatchView) -> Path:
        return self.folder / f"{batch.public_id}.jsonl"

    def errors(self, batch: BatchView) -> Path:
        return self.folder / f"{batch.public_id}.errors.jsonl"

    async def is_whole(self, batch: BatchView) -> bool:
        found = self.output(batch).read_bytes()
        errors = self.errors(batch).read_bytes() if self.errors(batch).exists() else b""
        return (found, errors) == (await self.make.stream(batch, OUTPUT), await self.make.stream(batch, ERROR))


@pytest.fixture
def host(make: Factory, tmp_path: Path) -> Iterator[Host]:
    host = Host(make, tmp_path / "incremental")
    yield host
    host.following.close()


async def started(make: Factory, count: int = 9) -> BatchView:
    """A batch of which everything is leased."""
    batch = await make.running(lines(count))
    await make.lease(batch)
    return batch


async def finished(make: Factory, batch: BatchView) -> BatchView:
    """Cancel what is left and seal the batch."""
    await cancel(make.store, make.owner, batch.public_id)
    await make.run("UPDATE block SET state = 'ready', worker = NULL WHERE state = 'leased'")
    return await make.sealed(batch)


async def test_the_files_grow_with_each_commit_to_the_result_files(make: Factory, host: Host) -> None:
    batch = await started(make)
    await host.look()
    assert host.output(batch).read_bytes() == b""
    assert not host.errors(batch).exists()

    one = await make.answer(batch, [4, 2])
    await host.look()
    assert host.output(batch).read_bytes() == one[0].text + one[1].text

    two, three = await make.answer(batch, [8], kind=ERROR), await make.answer(batch, [0])
    await host.look()
    assert host.errors(batch).read_bytes() == two[0].text
    assert host.output(batch).read_bytes().endswith(three[0].text)

    ended = await finished(make, batch)
    await host.look()
    assert await host.is_whole(ended)
    assert len(host.errors(batch).read_bytes().splitlines()) == 6


async def test_each_segment_is_one_write(make: Factory, host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    batch = await started(make)
    flushes = [await make.answer(batch, numbers) for numbers in ([0, 1, 2], [3], [4, 5])]
    written: list[bytes] = []

    def write(file: int, piece: memoryview) -> int:
        written.append(bytes(piece))
        return original(file, piece)

    original = os.write
    monkeypatch.setattr(os, "write", write)
    await host.look()
    assert written == [b"".join(a.text for a in flush) for flush in flushes]


async def test_only_its_owner_and_group_may_read_a_file(make: Factory, host: Host) -> None:
    batch = await started(make)
    before = os.umask(0)
    try:
        await host.look()
    finally:
        os.umask(before)
    assert host.output(batch).stat().st_mode & 0o777 == 0o640
    assert host.folder.stat().st_mode & 0o777 == 0o750


async def test_a_restart_writes_nothing_that_is_right_again(
    make: Factory, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = await started(make)
    await make.answer(batch, [0, 1])
    await host.look()
    before = host.output(batch).stat()
    host.restart()
    await host.look()
    after = host.output(batch).stat()
    assert (after.st_ino, after.st_mtime_ns, after.st_size) == (before.st_ino, before.st_mtime_ns, before.st_size)

    await make.answer(batch, [2])
    await host.look()
    assert host.output(batch).stat().st_ino == before.st_ino
    assert await host.is_whole(batch)


@pytest.mark.parametrize("position", [0, 1, 70, -30, -1])
@pytest.mark.parametrize("harm", ["changed", "cut", "longer", "removed"])
async def test_after_a_restart_a_file_is_made_whole_from_the_first_difference(
    make: Factory, host: Host, harm: str, position: int
) -> None:
    batch = await started(make)
    for number in range(4):
        await make.answer(batch, [number])
    await host.look()
    right = host.output(batch).read_bytes()
    position %= len(right)
    harmed = {
        "changed": right[:position] + b"\0" + right[position + 1 :],
        "cut": right[:position],
        "longer": right + b"x" * (position + 1),
        "removed": None,
    }[harm]
    host.following.close()
    if harmed is None:
        host.output(batch).unlink()
    else:
        host.output(batch).write_bytes(harmed)
    host.restart()
    await make.answer(batch, [5])
    await host.look()
    assert await host.is_whole(batch)


@pytest.mark.parametrize("harm", ["removed", "cut", "longer"])
async def test_a_file_that_somebody_touches_while_it_is_followed_is_made_whole(
    make: Factory, host: Host, harm: str
) -> None:
    batch = await started(make)
    await make.answer(batch, [0, 1])
    await host.look()
    if harm == "removed":
        host.output(batch).unlink()
    else:
        right = host.output(batch).read_bytes()
        host.output(batch).write_bytes(right[:10] if harm == "cut" else right + b"more")
    await make.answer(batch, [2])
    await host.look()
    assert await host.is_whole(batch)


async def test_a_batch_that_ended_while_nobody_followed_is_completed(make: Factory, host: Host) -> None:
    running, unseen = await started(make), await started(make, 3)
    await make.answer(running, [0])
    await host.look()
    done = await finished(make, running)
    await host.look()
    host.following.close()
    await make.answer(unseen, [1])
    late = await finished(make, unseen)
    never_seen = await make.completed(lines(2))

    host.restart()
    await host.look()
    for batch in (done, late, never_seen):
        assert await host.is_whole(batch)


async def test_batches_that_ended_before_the_folder_was_used_are_not_written(make: Factory, host: Host) -> None:
    old = await make.completed(lines(2))
    await make.run("UPDATE batch SET ended_at = ended_at - interval '1 hour'")
    await host.look()
    assert not host.output(old).exists()


async def test_a_file_that_was_removed_after_its_batch_ended_stays_away(make: Factory, host: Host) -> None:
    await host.look()
    first = await make.completed(lines(2))
    await host.look()
    await make.run("UPDATE batch SET ended_at = ended_at - interval '1 hour'")
    second = await make.completed(lines(2))
    await host.look()
    host.output(first).unlink()
    host.restart()
    await host.look()
    assert not host.output(first).exists()
    assert await host.is_whole(second)


async def test_a_batch_that_becomes_visible_late_is_not_overlooked(make: Factory, host: Host) -> None:
    """Its end is the start of its last transaction, which another one that ended later may have overtaken."""
    await host.look()
    early = await make.completed(lines(2))
    await make.run("UPDATE batch SET in_progress_at = NULL WHERE no = $1", early.no)
    later = await make.completed(lines(2, model="other"))
    await host.look()
    assert await host.is_whole(later)
    assert not host.output(early).exists()
    await make.run(
        "UPDATE batch SET in_progress_at = now(), ended_at = now() - interval '30 s' WHERE no = $1", early.no
    )
    await host.look()
    assert await host.is_whole(early)


async def test_one_process_of_a_host_follows_and_another_takes_over(make: Factory, host: Host) -> None:
    batch = await started(make)
    await make.answer(batch, [0])
    await host.look()
    second = Follow(host.deps)
    await make.answer(batch, [1])
    assert await second.round() is False
    assert not await host.is_whole(batch)

    host.following.close()
    assert await second.round() is False
    assert await host.is_whole(batch)
    second.close()


async def test_a_disk_that_refuses_one_file_does_not_stop_the_others(make: Factory, host: Host) -> None:
    bad, good = await started(make), await started(make)
    for batch in (bad, good):
        await make.answer(batch, [0])
    host.folder.mkdir()
    host.output(bad).mkdir()
    told = events.COUNTED.labels("incremental_failed")
    before = told._value.get()

    for _ in range(3):
        assert await host.following.round() is False
    assert await host.is_whole(good)
    assert told._value.get() == before + 1

    ended = await finished(make, bad)
    await host.look()
    host.output(bad).rmdir()
    await host.look()
    assert await host.is_whole(ended)


async def test_a_disk_that_fills_up_leaves_whole_lines(
    make: Factory, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = await started(make)
    one = await make.answer(batch, [0])
    await make.answer(batch, [1, 2])
    free = len(one[0].text) + 25

    def write(file: int, piece: memoryview) -> int:
        left = free - os.fstat(file).st_size
        if left <= 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return original(file, piece[:left])

    original = os.write
    with monkeypatch.context() as full:
        full.setattr(os, "write", write)
        await host.look()
    assert host.output(batch).read_bytes() == one[0].text

    await host.look()
    assert await host.is_whole(batch)


async def test_a_link_in_the_place_of_a_file_is_not_followed(make: Factory, host: Host, tmp_path: Path) -> None:
    batch = await started(make)
    await make.answer(batch, [0])
    host.folder.mkdir()
    target = tmp_path / "precious"
    target.write_text("mine")
    host.output(batch).symlink_to(target)
    await host.look()
    assert target.read_text() == "mine"


async def test_others_have_their_turn_while_a_long_file_catches_up(
    make: Factory, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(incremental, "MOST_AT_ONCE", 1)
    long, short = await started(make), await started(make)
    for number in range(4):
        await make.answer(long, [number])
    await make.answer(short, [0])
    assert await host.following.round() is True
    assert len(host.output(long).read_bytes().splitlines()) == 1
    assert await host.is_whole(short)
    await host.look()
    assert await host.is_whole(long)


async def test_any_number_of_batches_is_looked_at_a_page_at_a_time(
    make: Factory, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "PAGE", 2)
    running = [await started(make) for _ in range(5)]
    await host.look()
    for batch in running:
        await make.answer(batch, [0])
    await host.look()
    assert [await host.is_whole(batch) for batch in running] == [True] * 5
    ended = [await finished(make, batch) for batch in running]
    await host.look()
    assert [await host.is_whole(batch) for batch in ended] == [True] * 5


async def test_what_is_complete_or_deleted_is_forgotten(make: Factory, host: Host) -> None:
    done, gone = await started(make), await started(make)
    await host.look()
    assert len(host.following._followed) == 2
    await finished(make, done)
    await make.run("DELETE FROM batch WHERE no = $1", gone.no)
    await host.look()
    assert host.following._followed == {}
    assert list(host.following._complete) == [done.no]
    await make.run("UPDATE batch SET ended_at = ended_at - interval '1 hour'")
    await host.look()
    assert host.following._complete == {}


async def test_without_a_folder_nothing_is_written(make: Factory, tmp_path: Path) -> None:
    await started(make)
    assert await Follow(make.deps).round() is False
    assert list(tmp_path.iterdir()) == []


async def test_a_reader_of_the_growing_file_never_has_to_take_back_a_byte(make: Factory, host: Host) -> None:
    batch = await started(make, 200)
    await host.look()
    seen = b""
    with host.output(batch).open("rb") as tail:
        for number in range(0, 200, 8):
            await make.answer(batch, range(number, number + 8))
            looking = asyncio.ensure_future(host.look())
            while not looking.done():
                seen += tail.read()
                await asyncio.sleep(0)
            await looking
            seen += tail.read()
            assert seen.count(b"\n") == number + 8
            assert seen.endswith(b"\n")
    assert seen == await make.stream(batch, OUTPUT)


async def written(make: Factory) -> BatchView:
    """A batch that has ended with a response and errors."""
    batch = await started(make, 3)
    await make.answer(batch, [0])
    await make.answer(batch, [1], kind=ERROR)
    return await finished(make, batch)


async def delete_it(make: Factory, batch: BatchView, how: str) -> None:
    if how == "by its owner":
        await delete(make.store, make.owner, batch.public_id)
    else:
        await make.run("UPDATE batch SET ended_at = ended_at - interval '30 days' WHERE no = $1", batch.no)
        assert await deletion.delete_after_retention(make.store) == [batch.id]


@pytest.mark.parametrize("how", ["by its owner", "after its retention"])
async def test_the_files_of_a_deleted_batch_go_and_all_others_stay(
    make: Factory, host: Host, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(unfollow, "EVERY", 0)
    monkeypatch.setattr(unfollow, "PAGE", 1)
    first, second, kept = [await written(make) for _ in range(3)]
    await host.look()
    unknown = host.folder / f"{ids.show(ids.BATCH, ids.new(1))}.jsonl"
    others = [unknown, host.folder / "notes.jsonl", host.folder / f"{first.public_id}.jsonl.bak"]
    for path in others:
        path.write_text("mine")
    for batch in (first, second):
        await delete_it(make, batch, how)
    await host.look()
    left = {path.name for path in host.folder.iterdir()}
    assert left == {".lock", host.output(kept).name, host.errors(kept).name, *(path.name for path in others)}
    assert await host.is_whole(kept)


async def test_the_files_of_a_batch_deleted_while_nobody_followed_go_after_a_restart(make: Factory, host: Host) -> None:
    batch = await written(make)
    await host.look()
    host.following.close()
    await delete(make.store, make.owner, batch.public_id)
    host.restart()
    await host.look()
    assert [path.name for path in host.folder.iterdir()] == [".lock"]


async def test_a_file_that_cannot_be_removed_keeps_no_other(
    make: Factory, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unfollow, "EVERY", 0)
    batch, other = await written(make), await written(make)
    await host.look()
    host.output(batch).unlink()
    host.output(batch).mkdir()
    for deleted in (batch, other):
        await delete(make.store, make.owner, deleted.public_id)
    await host.look()
    assert {path.name for path in host.folder.iterdir()} == {".lock", host.output(batch).name}


async def test_following_that_is_cut_off_anywhere_ends_in_the_same_files(make: Factory, host: Host) -> None:
    done, deleted, running = await written(make), await written(make), await started(make)
    await make.answer(running, [3, 1])
    await delete(make.store, make.owner, deleted.public_id)
    steps, blown = 0, True
    while blown:
        for batch in (done, running):
            host.output(batch).unlink(missing_ok=True)
            host.errors(batch).unlink(missing_ok=True)
        host.folder.mkdir(exist_ok=True)
        (host.folder / ".lock").unlink(missing_ok=True)
        (host.folder / ".lock").write_text("2020-01-01T00:00:00+00:00")
        host.output(deleted).write_text("left")
        fuse = Fuse(steps)
        cut_off = Follow(dataclasses.replace(host.deps, store=FusedStore(make.store, fuse)))
        with contextlib.suppress(Crash):
            await cut_off.round()
        cut_off.close()
        host.restart()
        await host.look()
        assert await host.is_whole(done), steps
        assert await host.is_whole(running), steps
        assert not host.output(deleted).exists(), steps
        blown = fuse.blown
        steps += 1
    assert steps > 8
