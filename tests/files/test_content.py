"""Downloads: the same bytes, whole and in every range, as long as they are being read."""

from __future__ import annotations

import asyncio
import random
import tracemalloc

import pytest

from overnight.domain import ids
from overnight.domain.errors import FileNotFound
from overnight.domain.limits import MIB
from overnight.files import content, find
from overnight.files.delete import delete
from overnight.files.shape import StoredFile, of_row
from overnight.store import answers
from overnight.store import files as rows
from overnight.store.answers import Answer
from overnight.store.files import FileGone
from overnight.store.life import Life
from overnight.store.pool import Store
from tests.files.forms import request_line, rows_left, send, upload_form

BIG = b"".join(request_line(f"id-{n}", "x" * 1_000) for n in range(2_000)) + b"y" * 1_500_000
"""Chunks that end at line ends and some that don't."""


async def read(store: Store, file: StoredFile, start: int, stop: int) -> bytes:
    return b"".join([piece async for piece in content.stream(store, file, start, stop)])


async def test_every_range_is_the_slice_of_the_whole(store: Store) -> None:
    file = await send(store, upload_form(BIG))
    async with store.session() as session:
        found = await session.connection.fetch("SELECT starts FROM file_chunk WHERE file = $1", file.no)
    edges = {row["starts"] + shift for row in found for shift in (-1, 0, 1)} | {0, len(BIG) - 1, len(BIG)}
    places = sorted(edge for edge in edges if 0 <= edge <= len(BIG))
    chance = random.Random(7)

    for start, stop in [(0, len(BIG)), *(sorted(chance.sample(places, 2)) for _ in range(60))]:
        assert await read(store, file, start, stop) == BIG[start:stop]


async def test_an_empty_range_reads_nothing(store: Store) -> None:
    assert await read(store, await send(store, upload_form(request_line())), 5, 5) == b""


async def test_a_download_under_way_finishes_though_the_file_is_deleted_and_purged(store: Store) -> None:
    file = await send(store, upload_form(BIG))
    stream = content.stream(store, file, 0, file.bytes)
    got = await anext(stream)

    await delete(store, file.owner, file.public_id)
    while await rows.purge_round(store):
        pass
    async for piece in stream:
        got += piece

    assert got == BIG


async def test_a_download_whose_bytes_are_gone_breaks_off_and_never_ends_early(store: Store) -> None:
    file = await send(store, upload_form(BIG))
    stream = content.stream(store, file, 0, file.bytes)
    got = [await anext(stream)]
    async with store.session() as session:
        await session.connection.execute("DELETE FROM file_chunk")

    with pytest.raises(FileGone):
        got += [piece async for piece in stream]

    assert len(b"".join(got)) < len(BIG)


async def test_no_connection_is_held_while_a_slow_reader_is_waited_for(store_url: str) -> None:
    store = await Store(store_url, most=1).open()
    try:
        file = await send(store, upload_form(BIG))
        async for _ in content.stream(store, file, 0, file.bytes):
            async with asyncio.timeout(60):
                await rows_left(store)
    finally:
        await store.close()


async def test_memory_does_not_grow_with_the_download(store: Store) -> None:
    file = await send(store, upload_form(b"".join(request_line(str(n), "x" * 100_000) for n in range(400))))
    size = 0
    tracemalloc.start()
    try:
        async for piece in content.stream(store, file, 0, file.bytes):
            size += len(piece)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert size == file.bytes > 38 * MIB
    assert peak < 8 * MIB


async def test_an_output_is_the_result_stream_of_its_batch(store: Store) -> None:
    life = Life(store)
    await life.begin()
    texts = [f'{{"line":{n}}}\n'.encode() for n in range(30)]
    async with store.transaction() as session:
        batch, batch_id, owner = await session.connection.fetchrow(
            "INSERT INTO batch (no, id, owner, target, endpoint, source, status, completion_window, retention, total)"
            " SELECT next_batch_no(now()), gen_random_uuid(), no, 'chat', '/v1/chat/completions', 'file',"
            " 'in_progress', '24h', '7 days', 100 FROM account RETURNING no, id, owner"
        )
        for kind in (answers.OUTPUT, answers.ERROR):
            flush = [Answer(line=n + 50 * kind, text=text, kind=kind, tries=1) for n, text in enumerate(texts)]
            await answers.record(session, life.no, [(batch, flush)])
        size = sum(map(len, texts))
        made = [
            await rows.open_output(session, owner, batch, batch_id, kind, size, 30, bytes(32), None)
            for kind in (answers.OUTPUT, answers.ERROR)
        ]

    for kind, file_id in enumerate(made):
        row = await rows.find(store, owner, file_id)
        assert row is not None
        file = of_row(row)
        ending = ("output", "error")[kind]
        assert (file.purpose, file.filename) == ("batch_output", f"batch_{batch_id.hex}_{ending}.jsonl")
        assert await read(store, file, 0, file.bytes) == b"".join(texts)
        assert await read(store, file, 20, 300) == b"".join(texts)[20:300]


async def test_an_output_whose_results_are_gone_breaks_off(store: Store) -> None:
    async with store.transaction() as session:
        owner = await session.connection.fetchval("SELECT no FROM account")
        file_id = await rows.open_output(session, owner, 1, ids.new(0), 0, 10, 1, bytes(32), None)
    row = await rows.find(store, owner, file_id)
    assert row is not None

    with pytest.raises(FileGone):
        await read(store, of_row(row), 0, 10)


async def test_a_deleted_file_cannot_be_found_again(store: Store) -> None:
    file = await send(store, upload_form(request_line()))
    await delete(store, file.owner, file.public_id)

    with pytest.raises(FileNotFound):
        await find.get(store, file.owner, file.public_id)
    with pytest.raises(FileNotFound):
        await delete(store, file.owner, file.public_id)
