"""What one owner may upload and keep is exact, whoever calls at once; the local account has no such limits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from overnight.domain.errors import BadRequest, Interrupted, NoRoomForFile, TooManyUploads
from overnight.domain.limits import Limits
from overnight.files.delete import delete
from overnight.files.keep import keep
from overnight.files.shape import StoredFile
from overnight.files.upload import receive
from overnight.files.uploads.create import cancel
from overnight.files.uploads.find import Upload
from overnight.store import accounts, files
from overnight.store.pool import Store
from tests.files.forms import CONTENT_TYPE, add_account, request_line, rows_left, send, upload_form
from tests.files.sent_in_parts import begin

LINE = request_line()
SIZE = len(LINE)


@pytest.fixture
async def owner(store: Store) -> int:
    return await add_account(store, "somebody")


async def value(store: Store, sql: str, *given: Any) -> Any:
    async with store.session() as session:
        return await session.connection.fetchval(sql, *given)


async def upload(store: Store, owner: int, limits: Limits, content: bytes = LINE) -> StoredFile:
    return await send(store, upload_form(content), owner=owner, limits=limits)


async def begun(store: Store, owner: int, limits: Limits, size: int = SIZE) -> Upload:
    return (await begin(store, size, owner=owner, limits=limits)).upload


async def test_the_uploads_of_an_hour_are_counted_both_kinds_together(store: Store, owner: int) -> None:
    limits = Limits(uploads_per_hour=3)
    await upload(store, owner, limits)
    await begun(store, owner, limits)
    await upload(store, owner, limits)
    for another in (upload, begun):
        with pytest.raises(TooManyUploads, match="3 uploads") as raised:
            await another(store, owner, limits)
        assert (raised.value.again, raised.value.retry_after) == (False, None)
    assert await value(store, "SELECT count(*) FROM upload_begun") == 3


async def test_an_upload_that_failed_counts(store: Store, owner: int) -> None:
    limits = Limits(uploads_per_hour=2)

    async def cut() -> AsyncIterator[bytes]:
        yield upload_form(LINE)[:100]
        raise Interrupted("gone")

    with pytest.raises(Interrupted):
        await receive(store, limits, owner, CONTENT_TYPE, cut())
    with pytest.raises(BadRequest):
        await upload(store, owner, limits, b"")
    with pytest.raises(TooManyUploads):
        await upload(store, owner, limits)


@pytest.mark.parametrize(("age", "retry_after"), [("59 minutes 50 seconds", 10), ("10 minutes", None)])
async def test_there_is_room_again_when_the_oldest_is_an_hour_old(
    store: Store, owner: int, age: str, retry_after: int | None
) -> None:
    limits = Limits(uploads_per_hour=2)
    await value(store, "INSERT INTO upload_begun SELECT $1, now() - $2::text::interval", owner, age)
    await upload(store, owner, limits)
    with pytest.raises(TooManyUploads) as raised:
        await upload(store, owner, limits)
    assert raised.value.retry_after in ((retry_after, 9) if retry_after else (None,))
    await value(store, "UPDATE upload_begun SET at = now() - interval '1 hour' WHERE at < now() - interval '9 minutes'")
    await upload(store, owner, limits)
    assert await value(store, "SELECT count(*) FROM upload_begun") == 2


async def test_after_the_limit_was_lowered_the_wait_is_until_there_is_room(store: Store, owner: int) -> None:
    for age in ("59 minutes 55 seconds", "59 minutes 30 seconds", "1 minute"):
        await value(store, "INSERT INTO upload_begun SELECT $1, now() - $2::text::interval", owner, age)
    with pytest.raises(TooManyUploads, match=r"3 uploads .* of 2") as raised:
        await upload(store, owner, Limits(uploads_per_hour=2))
    assert raised.value.retry_after in (29, 30)


async def test_with_room_for_one_of_two_uploads_at_once_one_gets_in(store: Store, owner: int) -> None:
    limits = Limits(uploads_per_hour=4)
    for _ in range(3):
        await begun(store, owner, limits)
    both = [upload(store, owner, limits), upload(store, owner, limits)]
    came = await asyncio.gather(*both, begun(store, owner, limits), return_exceptions=True)
    assert sum(isinstance(one, TooManyUploads) for one in came) == 2
    assert sum(isinstance(one, StoredFile | Upload) for one in came) == 1


async def lock_wait(store: Store) -> None:
    async with asyncio.timeout(60):
        while not await value(
            store,
            "SELECT count(*) FROM pg_locks WHERE NOT granted"
            " AND pid IN (SELECT pid FROM pg_stat_activity WHERE datname = current_database())",
        ):
            await asyncio.sleep(0)


@pytest.mark.parametrize("kept", [True, False])
async def test_an_upload_counts_the_one_before_it_if_that_is_kept(store: Store, owner: int, kept: bool) -> None:
    early = await store.connect("early")
    transaction = early.connection.transaction()
    await transaction.start()
    await accounts.lock(early, owner)
    await early.connection.execute("INSERT INTO upload_begun (owner) VALUES ($1)", owner)
    late = asyncio.create_task(upload(store, owner, Limits(uploads_per_hour=1)))
    await lock_wait(store)
    await (transaction.commit() if kept else transaction.rollback())
    await early.connection.close()
    if kept:
        with pytest.raises(TooManyUploads):
            await late
    else:
        assert (await late).bytes == SIZE


async def test_stored_bytes_are_exact_to_the_byte(store: Store, owner: int) -> None:
    limits = Limits(file_bytes_per_owner=3 * SIZE - 1)
    first = await upload(store, owner, limits)
    await upload(store, owner, limits)
    with pytest.raises(NoRoomForFile, match=f"{2 * SIZE} bytes of {3 * SIZE - 1}") as raised:
        await upload(store, owner, limits)
    assert raised.value.again is False
    assert await rows_left(store) == (2, 2)
    await upload(store, owner, limits, LINE[:-1])
    await delete(store, owner, first.public_id)
    await upload(store, owner, limits)


async def test_of_two_files_that_arrive_at_once_the_one_that_does_not_fit_any_more_is_refused(
    store: Store, owner: int
) -> None:
    limits = Limits(file_bytes_per_owner=2 * SIZE - 1)
    came = await asyncio.gather(*(upload(store, owner, limits) for _ in range(3)), return_exceptions=True)
    assert sum(isinstance(one, StoredFile) for one in came) == 1
    assert sum(isinstance(one, NoRoomForFile) for one in came) == 2
    assert await rows_left(store) == (1, 1)


@pytest.mark.parametrize("kept", [True, False])
async def test_a_file_counts_the_one_that_became_visible_before_it(store: Store, owner: int, kept: bool) -> None:
    early = await store.connect("early")
    transaction = early.connection.transaction()
    await transaction.start()
    limits = Limits(file_bytes_per_owner=2 * SIZE - 1)
    task = None
    try:
        task = asyncio.create_task(upload_after(store, owner, limits, early))
        await lock_wait(store)
        await early.connection.execute(
            "INSERT INTO upload (id, owner, filename, bytes, state, expires_at, until)"
            " VALUES (gen_random_uuid(), $1, 'f', $2, 'pending', now() + interval '1 hour', now() + interval '1 hour')",
            *(owner, SIZE),
        )
        await (transaction.commit() if kept else transaction.rollback())
    finally:
        await early.connection.close()
    if kept:
        with pytest.raises(NoRoomForFile):
            await task
    else:
        assert (await task).bytes == SIZE


async def upload_after(store: Store, owner: int, limits: Limits, early: Any) -> StoredFile:
    """Upload a file while, before its last byte, another connection begins to count what the owner has."""

    async def body() -> AsyncIterator[bytes]:
        form = upload_form(LINE)
        yield form[:50]
        await accounts.lock(early, owner)
        yield form[50:]

    return await receive(store, limits, owner, CONTENT_TYPE, body())


async def test_the_room_for_an_announced_file_is_held_until_it_ends(store: Store, owner: int) -> None:
    limits = Limits(file_bytes_per_owner=2 * SIZE)
    first = await begun(store, owner, limits, SIZE + 1)
    for another in (upload, begun):
        with pytest.raises(NoRoomForFile):
            await another(store, owner, limits)
    await cancel(store, owner, first.public_id)
    await begun(store, owner, limits)
    await upload(store, owner, limits)


async def test_a_file_that_is_put_together_takes_the_room_that_was_held_for_it(store: Store, owner: int) -> None:
    limits = Limits(file_bytes_per_owner=SIZE)
    parts = await begin(store, SIZE, owner=owner, limits=limits)
    await parts.add(LINE)
    done = await parts.complete()
    assert done.file is not None
    with pytest.raises(NoRoomForFile):
        await upload(store, owner, limits, LINE[:2])


async def test_a_file_that_is_announced_too_large_is_not_read(store: Store, owner: int) -> None:
    read = []

    async def unread() -> AsyncIterator[bytes]:
        read.append(True)
        yield b""

    limits = Limits(file_bytes_per_owner=1_000)
    with pytest.raises(NoRoomForFile):
        await receive(store, limits, owner, CONTENT_TYPE, unread(), announced=10_000_000)
    assert read == []


async def test_a_file_that_turns_out_too_large_is_given_up_while_it_comes(store: Store, owner: int) -> None:
    form = upload_form(LINE * 10_000)
    with pytest.raises(NoRoomForFile):
        await send(store, form, owner=owner, limits=Limits(file_bytes_per_owner=100_000), step=10_000)
    assert await rows_left(store) == (0, 0)


async def test_only_what_an_owner_can_still_see_counts(store: Store, owner: int) -> None:
    limits = Limits(file_bytes_per_owner=SIZE)
    file = await upload(store, owner, limits)
    await value(store, "UPDATE file SET expires_at = now() WHERE no = $1", file.no)
    await upload(store, owner, limits)
    other = await add_account(store, "other")
    await upload(store, other, limits)


async def test_what_the_server_puts_together_is_kept_within_the_same_room(store: Store, owner: int) -> None:
    async def content() -> AsyncIterator[bytes]:
        yield LINE

    limits = Limits(file_bytes_per_owner=SIZE - 1, uploads_per_hour=1)
    with pytest.raises(NoRoomForFile):
        async with (
            keep(store, limits, owner, "f", content(), limits.file_retention) as kept,
            store.transaction() as session,
        ):
            await kept.appear(session)
    assert await value(store, "SELECT count(*) FROM file WHERE state = 'ready'") == 0
    assert await value(store, "SELECT count(*) FROM upload_begun") == 0


async def test_the_local_account_has_none_of_these_limits(store: Store) -> None:
    limits = Limits(uploads_per_hour=1, file_bytes_per_owner=1)
    local = await accounts.local_owner(store)
    for _ in range(2):
        await upload(store, local, limits)
        await begun(store, local, limits)
    assert await value(store, "SELECT count(*) FROM upload_begun") == 0
    assert len(await files.page(store, local, purpose=None, most=9, newest_first=True, after=None)) == 2
