"""Looking at one's files: lists that stay stable, and nobody else's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from overnight.domain import ids
from overnight.domain.errors import FileNotFound, InvalidParameter
from overnight.domain.limits import Limits
from overnight.files import find
from overnight.files.delete import delete
from overnight.files.shape import StoredFile
from overnight.files.upload import receive
from overnight.store import files as rows
from overnight.store.pool import Store
from tests.files.forms import CONTENT_TYPE, add_account, request_line, send, upload_form

SMALL = upload_form(request_line())


async def pages(store: Store, owner: int, *, order: str = "desc", limit: int = 2) -> list[list[StoredFile]]:
    """All pages of a list, read as client libraries do."""
    found: list[list[StoredFile]] = []
    has_more, after = True, None
    while has_more:
        page, has_more = await find.page(store, owner, purpose=None, limit=limit, order=order, after=after)
        found.append(page)
        after = page[-1].public_id if page else None
    return found


async def expire(store: Store, file: StoredFile) -> None:
    async with store.session() as session:
        await session.connection.execute("UPDATE file SET expires_at = now() WHERE no = $1", file.no)


@pytest.mark.parametrize("order", ["desc", "asc"])
async def test_pages_hold_every_file_once_in_order_and_say_when_there_are_more(store: Store, order: str) -> None:
    files = [await send(store, SMALL) for _ in range(4)]

    found = await pages(store, files[0].owner, order=order)

    assert [len(page) for page in found] == [2, 2]
    assert [f.no for page in found for f in page] == sorted((f.no for f in files), reverse=order == "desc")


async def test_a_list_of_no_files_is_empty(store: Store) -> None:
    assert await find.page(store, 1, purpose=None, limit=5, order="desc", after=None) == ([], False)


async def test_a_list_goes_on_where_it_was_while_files_come_and_go(store: Store) -> None:
    files = [await send(store, SMALL) for _ in range(5)]
    owner = files[0].owner
    first, _ = await find.page(store, owner, purpose=None, limit=2, order="desc", after=None)

    await send(store, SMALL)
    for file in first:
        await delete(store, owner, file.public_id)
    rest, has_more = await find.page(store, owner, purpose=None, limit=10, order="desc", after=first[-1].public_id)

    assert [f.no for f in rest] == [files[n].no for n in (2, 1, 0)]
    assert not has_more


async def test_a_slow_upload_is_listed_where_it_became_whole(store: Store) -> None:
    first = await send(store, SMALL)
    last: list[StoredFile] = []

    async def slow() -> AsyncIterator[bytes]:
        big = upload_form(request_line(content="x" * 1_000) * 4_000)
        yield big[:-10]
        last.append(await send(store, SMALL))
        yield big[-10:]

    slow_one = await receive(store, Limits(), first.owner, CONTENT_TYPE, slow())

    listed, _ = await find.page(store, first.owner, purpose=None, limit=9, order="asc", after=last[0].public_id)
    assert [f.no for f in listed] == [slow_one.no]


async def test_a_list_can_be_of_one_purpose(store: Store) -> None:
    file = await send(store, SMALL)
    async with store.transaction() as session:
        output = await rows.open_output(session, file.owner, 1, file.id, 0, 10, 1, bytes(32), None)

    for purpose, expected in (("batch", [file.id]), ("batch_output", [output]), ("vision", [])):
        found, _ = await find.page(store, file.owner, purpose=purpose, limit=9, order="desc", after=None)
        assert [f.id for f in found] == expected


async def test_the_problems_shown_come_with_a_list_but_no_more(store: Store) -> None:
    file = await send(store, upload_form(b"{}\n" * 50))

    [listed], _ = await find.page(store, file.owner, purpose=None, limit=9, order="desc", after=None)

    assert (listed.problem_count, listed.problems) == (50, file.problems[:20])


async def test_what_is_somebody_elses_reads_like_what_is_not_there(store: Store) -> None:
    file = await send(store, SMALL)
    other = await add_account(store, "other")
    unknown = ids.show(ids.FILE, ids.new(0))

    said = []
    for owner, file_id in ((other, file.public_id), (file.owner, unknown)):
        with pytest.raises(FileNotFound) as got:
            await find.get(store, owner, file_id)
        with pytest.raises(FileNotFound) as deleted:
            await delete(store, owner, file_id)
        with pytest.raises(InvalidParameter) as listed:
            await find.page(store, owner, purpose=None, limit=2, order="desc", after=file_id)
        assert listed.value.param == "after"
        said.append([e.value.message.replace(file_id, "") for e in (got, deleted, listed)])

    assert said[0] == said[1]
    assert await find.get(store, file.owner, file.public_id) == file
    assert (await find.page(store, other, purpose=None, limit=2, order="desc", after=None))[0] == []


@pytest.mark.parametrize(
    "file_id", ["", "file-", "x", "batch_" + "0" * 32, "file-" + "0" * 31, "file-" + "G" * 32, "file-\0", "é" * 5_000]
)
async def test_what_is_no_id_at_all_is_not_found(store: Store, file_id: str) -> None:
    with pytest.raises(FileNotFound):
        await find.get(store, 1, file_id)
    with pytest.raises(InvalidParameter):
        await find.page(store, 1, purpose=None, limit=2, order="desc", after=file_id)


async def test_an_expired_file_is_not_there_even_before_it_is_purged(store: Store) -> None:
    file = await send(store, SMALL)
    await expire(store, file)

    with pytest.raises(FileNotFound):
        await find.get(store, file.owner, file.public_id)
    with pytest.raises(FileNotFound):
        await delete(store, file.owner, file.public_id)
    assert (await find.page(store, file.owner, purpose=None, limit=2, order="desc", after=None))[0] == []


async def test_of_two_deletes_at_once_one_is_told_that_it_deleted(store: Store) -> None:
    file = await send(store, SMALL)

    came = await asyncio.gather(*(delete(store, file.owner, file.public_id) for _ in range(2)), return_exceptions=True)

    assert sorted(type(c).__name__ for c in came) == ["FileNotFound", "NoneType"]
