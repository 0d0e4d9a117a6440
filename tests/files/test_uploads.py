"""Files sent in parts: the same as if they had come at once, and nothing half done whatever happens."""

from __future__ import annotations

import asyncio
import hashlib
import tracemalloc
from collections.abc import AsyncIterator
from itertools import count
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from overnight.domain.errors import Interrupted, InvalidParameter, NotReady, TooLarge, UploadNotPending
from overnight.domain.limits import MIB, PART_BYTES, Limits
from overnight.files import content, find
from overnight.files.shape import StoredFile, as_json
from overnight.files.uploads import part as parts
from overnight.files.uploads.create import cancel
from overnight.files.uploads.find import get
from overnight.store import files as rows
from overnight.store import uploads
from overnight.store.pool import Store
from tests.files.forms import CONTENT_TYPE, request_line, rows_left, send, upload_form
from tests.files.sent_in_parts import HEAD, TAIL, Parts, begin, cut_up, part_form
from tests.upkeep.fuse import Crash, Fuse, FusedStore

BIG = b"".join(request_line(f"id-{n}", "x" * 1_000) for n in range(3_000))
"""About 3 MiB: more chunks than are stored at once."""


async def stored_bytes(store: Store, file: StoredFile) -> bytes:
    return b"".join([piece async for piece in content.stream(store, file, 0, file.bytes)])


async def all_files(store: Store, owner: int) -> list[StoredFile]:
    return (await find.page(store, owner, purpose=None, limit=100, order="asc", after=None))[0]


async def purge_all(store: Store) -> None:
    while await rows.purge_round(store) or await uploads.purge_round(store):
        pass


async def change(store: Store, statement: str) -> None:
    async with store.session() as session:
        await session.connection.execute(statement)


async def sent(store: Store, *pieces: bytes) -> Parts:
    """An upload with all its parts."""
    upload = await begin(store, sum(map(len, pieces)))
    await upload.add(*pieces)
    return upload


async def what_was_stored(store: Store, file: StoredFile) -> Any:
    """Everything about a file that does not depend on when it came."""
    shown = {name: value for name, value in as_json(file).items() if name not in ("id", "created_at", "expires_at")}
    async with store.session() as session:
        chunks = await session.connection.fetch(
            "SELECT starts, bytes, data FROM file_chunk WHERE file = $1 ORDER BY starts", file.no
        )
    return shown, file.problems, file.checks, [tuple(chunk) for chunk in chunks]


a_line = st.one_of(
    st.builds(
        lambda name, size: request_line(name, "ü" * size), st.sampled_from("abcdefgh"), st.sampled_from([1, 80_000])
    ),
    st.integers().map(lambda n: request_line(f"id-{n}")),
    st.sampled_from([b"\n", b"\r\n", b"{}\n", b"\xff\n", b"[1,\n", b"\xef\xbb\xbf\n", b'{"a": NaN}\n']),
    st.binary(max_size=30),
)
a_file = st.lists(a_line, min_size=1, max_size=12).map(b"".join).filter(len)


@given(a_file, st.lists(st.floats(0, 1), max_size=6))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_a_file_is_the_same_however_it_was_cut_into_parts(store: Store, text: bytes, cuts: list[float]) -> None:
    direct = await send(store, upload_form(text))
    upload = await sent(store, *cut_up(text, *(int(len(text) * cut) for cut in cuts)))

    file = (await upload.complete(md5=hashlib.md5(text).hexdigest())).file

    assert file is not None
    assert await stored_bytes(store, file) == text
    assert await what_was_stored(store, file) == await what_was_stored(store, direct)


async def test_a_completed_upload_leaves_nothing_of_its_parts(store: Store) -> None:
    upload = await sent(store, *cut_up(BIG, 7, 1_000_000, 1_000_001))

    done = await upload.complete()
    await purge_all(store)

    assert done.file is not None
    assert await all_files(store, upload.owner) == [done.file]
    assert (await rows_left(store))[0] == 1
    assert await stored_bytes(store, done.file) == BIG


async def test_parts_go_where_the_completing_call_says(store: Store) -> None:
    pieces = cut_up(BIG, 500_000, 1_700_000)
    upload = await begin(store, len(BIG))
    await upload.add(*reversed(pieces))
    upload.ids.reverse()

    done = await upload.complete()

    assert done.file is not None
    assert await stored_bytes(store, done.file) == BIG


async def test_parts_may_arrive_at_once_and_be_left_out(store: Store) -> None:
    pieces = cut_up(BIG, 500_000, 1_000_000, 2_000_000)
    upload = await begin(store, len(BIG))
    others = [Parts(store, upload.owner, upload.upload, Limits()) for _ in pieces]
    found = await asyncio.gather(*(other.add(piece) for other, piece in zip(others, pieces, strict=True)))
    await upload.add(b"not wanted")
    upload.ids = [part_id for [part_id] in found]

    done = await upload.complete()

    assert done.file is not None
    assert await stored_bytes(store, done.file) == BIG


async def test_nobody_sees_a_part_or_a_file_before_the_upload_is_completed(store: Store) -> None:
    upload = await sent(store, BIG)

    assert await all_files(store, upload.owner) == []
    assert upload.upload.file is None


async def test_completing_again_returns_the_file_that_there_is(store: Store) -> None:
    upload = await sent(store, BIG)

    first = await upload.complete()
    await purge_all(store)

    assert await upload.complete() == first
    assert await all_files(store, upload.owner) == [first.file]


@pytest.mark.parametrize("how", ["in step", "one later", "one after the purge"])
async def test_two_completes_at_once_make_one_file(store: Store, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    """Both put the file together, and commit at the same moment or one after the other."""
    upload = await sent(store, *cut_up(BIG, 1_000_000))
    barrier = asyncio.Barrier(2)
    really = uploads.complete

    async def in_step(*given: Any) -> Any:
        await barrier.wait()
        return await really(*given)

    async def late(*given: Any) -> Any:
        monkeypatch.setattr(uploads, "complete", really)
        await upload.complete()
        if how == "one after the purge":
            await purge_all(store)
        return await really(*given)

    monkeypatch.setattr(uploads, "complete", in_step if how == "in step" else late)
    calls = 2 if how == "in step" else 1
    done = await asyncio.gather(*(upload.complete() for _ in range(calls)))
    done.append(await upload.complete())

    assert len({file.id for u in done if (file := u.file)}) == 1
    assert all(u.status == "completed" and u.file for u in done)
    await purge_all(store)
    assert (await rows_left(store))[0] == 1
    assert done[0].file is not None
    assert await stored_bytes(store, done[0].file) == BIG


async def test_a_complete_whose_parts_another_one_used_up_returns_that_ones_file(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    upload = await sent(store, *cut_up(BIG, 1_000_000))
    really = rows.read_chunks

    async def late(*given: Any) -> AsyncIterator[bytes]:
        monkeypatch.setattr(rows, "read_chunks", really)
        await upload.complete()
        await purge_all(store)
        async for piece in really(*given):
            yield piece

    monkeypatch.setattr(rows, "read_chunks", late)
    done = await upload.complete()

    assert done.status == "completed"
    assert await all_files(store, upload.owner) == [done.file]


async def test_a_crash_anywhere_leaves_an_upload_that_can_be_completed(store: Store) -> None:
    doubled = BIG + request_line("id-1")
    expected = await what_was_stored(store, await send(store, upload_form(doubled)))

    for steps in count():
        upload = await sent(store, *cut_up(doubled, 1_000_000))
        fuse = Fuse(steps)
        try:
            await upload.complete(store=FusedStore(store, fuse))
        except Crash:
            pass
        after = await get(store, upload.owner, upload.upload.public_id)
        assert (after.status, after.file is None) in (("pending", True), ("completed", False))

        done = await upload.complete()

        assert done.file is not None
        assert await what_was_stored(store, done.file) == expected, f"after a crash at step {steps}"
        files = {file.id for file in await all_files(store, upload.owner)}
        assert len(files) == steps + 2
        assert after.file in (None, done.file)
        if not fuse.blown:
            break
    await change(store, "UPDATE file SET touched_at = now() - interval '16 minutes' WHERE state = 'arriving'")
    await purge_all(store)

    assert steps > 15
    assert (await rows_left(store))[0] == len(files)


async def test_a_crash_anywhere_while_a_part_comes_leaves_no_part_that_counts(store: Store) -> None:
    upload = await begin(store, len(BIG))
    for steps in count():
        fuse = Fuse(steps)
        sender = Parts(FusedStore(store, fuse), upload.owner, upload.upload, Limits())
        try:
            await sender.add(BIG)
        except Crash:
            pass
        if not fuse.blown:
            break

    upload.ids = sender.ids
    done = await upload.complete()
    await change(store, "UPDATE file SET touched_at = now() - interval '16 minutes' WHERE state = 'arriving'")
    await purge_all(store)

    assert steps > 8
    assert done.file is not None
    assert await stored_bytes(store, done.file) == BIG
    assert (await rows_left(store))[0] == 1


async def test_a_refused_complete_leaves_the_upload_as_it_was(store: Store) -> None:
    upload = await begin(store, len(BIG))
    await upload.add(BIG[:1_000_000])
    with pytest.raises(InvalidParameter) as short:
        await upload.complete()
    await upload.add(BIG[1_000_000:])
    with pytest.raises(InvalidParameter) as other:
        await upload.complete(md5="0" * 32)

    assert (short.value.param, other.value.param) == ("part_ids", "md5")
    assert f"{len(BIG):,}" in short.value.message
    assert "1,000,000" in short.value.message
    await purge_all(store)
    assert (await rows_left(store))[0] == 2
    assert (await upload.complete()).status == "completed"


async def test_parts_of_another_upload_are_not_taken(store: Store) -> None:
    one, other = await sent(store, BIG), await sent(store, BIG)
    one.ids = other.ids

    with pytest.raises(InvalidParameter) as caught:
        await one.complete()

    assert caught.value.param == "part_ids"
    assert other.ids[0] in caught.value.message
    assert (await other.complete()).status == "completed"


async def test_a_part_that_is_still_coming_is_not_taken(store: Store) -> None:
    upload = await begin(store, len(BIG))
    seen = []

    async def body() -> AsyncIterator[bytes]:
        yield part_form(BIG)[:-10]
        async with store.session() as session:
            part_id = await session.connection.fetchval("SELECT id FROM file WHERE state = 'arriving'")
        upload.ids = [f"part_{part_id.hex}"]
        with pytest.raises(InvalidParameter):
            await upload.complete()
        seen.append(part_id)
        yield part_form(BIG)[-10:]

    part = await parts.receive(store, upload.owner, upload.upload.public_id, CONTENT_TYPE, body())

    assert seen == [part.id]
    assert (await upload.complete()).status == "completed"


@pytest.mark.parametrize("how", ["cancelled", "completed", "expired"])
async def test_a_part_whose_upload_ends_meanwhile_is_refused_and_leaves_nothing(store: Store, how: str) -> None:
    upload = await sent(store, BIG)

    async def body() -> AsyncIterator[bytes]:
        yield part_form(BIG)[:-10]
        if how == "cancelled":
            await cancel(store, upload.owner, upload.upload.public_id)
        elif how == "completed":
            await upload.complete()
        else:
            await change(store, "UPDATE upload SET until = now()")
            await purge_all(store)
        yield part_form(BIG)[-10:]

    with pytest.raises(UploadNotPending):
        await parts.receive(store, upload.owner, upload.upload.public_id, CONTENT_TYPE, body())

    await purge_all(store)
    assert (await rows_left(store))[0] == (1 if how == "completed" else 0)


async def test_a_part_whose_sender_goes_away_leaves_nothing(store: Store) -> None:
    upload = await begin(store, len(BIG))

    async def body() -> AsyncIterator[bytes]:
        yield part_form(BIG)[:-100]
        assert (await rows_left(store))[1] > 0
        raise Interrupted("gone")

    with pytest.raises(Interrupted):
        await parts.receive(store, upload.owner, upload.upload.public_id, CONTENT_TYPE, body())

    assert await rows_left(store) == (0, 0)


async def test_a_part_that_was_given_up_meanwhile_cannot_come_back(store: Store) -> None:
    upload = await begin(store, len(BIG))

    async def body() -> AsyncIterator[bytes]:
        yield part_form(BIG)[:-10]
        await change(store, "UPDATE file SET touched_at = now() - interval '16 minutes'")
        await purge_all(store)
        yield part_form(BIG)[-10:]

    with pytest.raises(Interrupted):
        await parts.receive(store, upload.owner, upload.upload.public_id, CONTENT_TYPE, body())

    assert await rows_left(store) == (0, 0)


async def test_a_file_given_up_while_it_is_put_together_may_be_completed_again(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    upload = await sent(store, *cut_up(BIG, 2_900_000))
    really = rows.read_chunks

    async def stalled(given: Store, part: int, start: int, stop: int) -> AsyncIterator[bytes]:
        await change(store, "UPDATE file SET touched_at = now() - interval '16 minutes' WHERE state = 'arriving'")
        while await rows.purge_round(store):
            pass
        async for piece in really(given, part, start, stop):
            yield piece

    monkeypatch.setattr(rows, "read_chunks", stalled)
    with pytest.raises(NotReady):
        await upload.complete()
    monkeypatch.setattr(rows, "read_chunks", really)

    assert (await upload.complete()).status == "completed"
    assert len(await all_files(store, upload.owner)) == 1


async def test_a_complete_that_began_in_time_may_end_later(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    upload = await sent(store, BIG)
    really = rows.begin

    async def late(*given: Any) -> Any:
        await change(store, "UPDATE upload SET expires_at = now(), until = until - interval '1 hour'")
        await purge_all(store)
        return await really(*given)

    monkeypatch.setattr(rows, "begin", late)

    assert (await upload.complete()).status == "completed"


async def test_a_complete_that_takes_hours_finds_its_upload_expired(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    upload = await sent(store, BIG)
    really = rows.begin

    async def late(*given: Any) -> Any:
        await change(store, "UPDATE upload SET until = now()")
        return await really(*given)

    monkeypatch.setattr(rows, "begin", late)
    with pytest.raises(UploadNotPending):
        await upload.complete()

    await purge_all(store)
    assert await rows_left(store) == (0, 0)


async def test_a_part_at_the_limit_is_taken_and_one_byte_more_is_not(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "PART_BYTES", len(BIG))
    upload = await sent(store, BIG)

    with pytest.raises(TooLarge) as caught:
        await upload.add(BIG + b"\n")

    assert f"{len(BIG) + 1:,}" in caught.value.message
    assert (await rows_left(store))[0] == 1


async def test_a_part_larger_than_its_upload_is_refused_and_leaves_nothing(store: Store) -> None:
    upload = await begin(store, len(BIG) - 1)

    with pytest.raises(InvalidParameter) as caught:
        await upload.add(BIG)

    assert f"{len(BIG) - 1:,}" in caught.value.message
    assert caught.value.param == "data"
    await purge_all(store)
    assert await rows_left(store) == (0, 0)


async def test_an_upload_takes_no_more_parts_than_can_be_named(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "MOST_PARTS", 2)
    upload = await sent(store, b"a", b"b")

    with pytest.raises(InvalidParameter):
        await upload.add(b"c")


async def test_memory_grows_neither_with_the_parts_nor_with_the_file(store: Store) -> None:
    lines = b"".join(request_line(f"id-{n}", "x" * 4_000) for n in range(256))
    per_part = PART_BYTES // len(lines)
    upload = await begin(store, 2 * per_part * len(lines))

    async def body() -> AsyncIterator[bytes]:
        yield HEAD
        for _ in range(per_part):
            yield lines
        yield TAIL

    tracemalloc.start()
    try:
        for _ in range(2):
            part = await parts.receive(store, upload.owner, upload.upload.public_id, CONTENT_TYPE, body())
            upload.ids.append(f"part_{part.id.hex}")
        file = (await upload.complete()).file
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert file is not None
    assert file.bytes > 120 * MIB
    assert peak < 24 * MIB
