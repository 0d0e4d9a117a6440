"""Uploads: what is kept, what is refused, and that a failed one leaves nothing."""

from __future__ import annotations

import asyncio
import hashlib
import time
import tracemalloc
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from overnight.domain.errors import (
    BadRequest,
    EmptyFile,
    Interrupted,
    InvalidParameter,
    MissingParameter,
    TooLarge,
    UnsupportedMediaType,
)
from overnight.domain.limits import CHUNK_BYTES, MIB, Limits
from overnight.domain.lines import CHECKS
from overnight.files import chunks, content, find
from overnight.files.shape import StoredFile, as_json
from overnight.files.upload import receive
from overnight.store import files as rows
from overnight.store.accounts import local_owner
from overnight.store.pool import Store
from tests.files.forms import (
    BOUNDARY,
    CONTENT_TYPE,
    PURPOSE,
    file_part,
    form,
    part,
    request_line,
    rows_left,
    send,
    upload_form,
)

BOM = b"\xef\xbb\xbf"
BIG = b"".join(request_line(f"id-{n}", "x" * 1_000) for n in range(3_000))
"""About 3 MiB: more chunks than are stored at once."""


async def stored_bytes(store: Store, file: StoredFile) -> bytes:
    return b"".join([piece async for piece in content.stream(store, file, 0, file.bytes)])


async def test_an_uploaded_file_is_there_at_once_and_whole(store: Store) -> None:
    file = await send(store, upload_form(BIG), step=50_000)

    found = await find.get(store, file.owner, file.public_id)
    assert found == file
    assert (found.bytes, found.lines, found.sha256) == (len(BIG), 3_000, hashlib.sha256(BIG).digest())
    assert (found.checks, found.problem_count, found.problems) == (CHECKS, 0, ())
    assert await stored_bytes(store, found) == BIG


async def test_the_file_object_has_every_field_a_client_reads(store: Store) -> None:
    before = int(time.time()) - 1

    shown = as_json(await send(store, upload_form(request_line())))

    created_at = shown.pop("created_at")
    assert before <= created_at <= time.time() + 1
    assert shown.pop("id").startswith("file-")
    assert shown == {
        "object": "file",
        "bytes": len(request_line()),
        "expires_at": created_at + int(Limits().file_retention.total_seconds()),
        "filename": "in.jsonl",
        "purpose": "batch",
        "status": "processed",
        "status_details": None,
        "sha256": hashlib.sha256(request_line()).hexdigest(),
        "lines": 1,
        "problems": None,
    }


async def test_a_life_that_the_form_asks_for_is_given(store: Store) -> None:
    fields = {"expires_after[anchor]": "created_at", "expires_after_seconds": "7200"}

    file = await send(store, upload_form(request_line(), **fields))

    assert file.expires_at == file.created_at + timedelta(hours=2)


async def test_the_purpose_may_come_after_a_file_of_many_chunks(store: Store) -> None:
    file = await send(store, form(file_part(BIG), part(*PURPOSE)), step=50_000)

    assert await stored_bytes(store, file) == BIG


async def test_chunks_end_at_line_ends(store: Store) -> None:
    file = await send(store, upload_form(BIG))

    async with store.session() as session:
        sizes = await session.connection.fetch("SELECT bytes FROM file_chunk WHERE file = $1", file.no)
    pieces = [piece async for piece in rows.read_input(store, file.no)]
    assert [len(piece) for piece in pieces] == [row["bytes"] for row in sizes]
    assert all(piece.endswith(b"\n") and len(piece) <= CHUNK_BYTES for piece in pieces)


async def test_problems_do_not_refuse_the_upload_but_are_told_at_once(store: Store) -> None:
    bad = request_line("a") + b"\xff\n" + b"{}\n" * 30 + request_line("a")

    file = await send(store, upload_form(bad))

    shown = as_json(file)["problems"]
    assert (file.problem_count, len(file.problems), shown["count"], len(shown["first"])) == (32, 32, 32, 20)
    assert shown["first"][:2] == [
        {"code": "invalid_utf8", "line": 2, "message": file.problems[0].message, "param": None},
        {
            "code": "missing_required_parameter",
            "line": 3,
            "message": file.problems[1].message,
            "param": "custom_id",
        },
    ]
    assert (file.problems[-1].code, file.problems[-1].line) == ("duplicate_custom_id", 32)
    assert await find.get(store, file.owner, file.public_id) == file


async def test_a_repeated_id_is_found_across_chunks(store: Store) -> None:
    file = await send(store, upload_form(BIG + request_line("id-7")), step=50_000)

    assert [(p.code, p.line) for p in file.problems] == [("duplicate_custom_id", 3_000)]
    assert "line 8" in file.problems[0].message


async def test_what_a_caller_wrote_into_a_problem_never_breaks_the_upload(store: Store) -> None:
    file = await send(store, upload_form(b'{"custom_id":"a","method":1,"url":1,"body":1,"x\\u0000":1}\n'))

    assert file.problems[0].code == "invalid_parameter"


@pytest.mark.parametrize("text", [BOM + request_line(), request_line()[:-1] + b"\r\n\r\n", request_line()[:-1]])
async def test_a_file_is_stored_as_it_came_whatever_its_line_ends(store: Store, text: bytes) -> None:
    file = await send(store, upload_form(text))

    assert (file.lines, file.problem_count) == (1, 0)
    assert await stored_bytes(store, file) == text


async def test_a_file_of_blank_lines_is_kept_with_its_problem(store: Store) -> None:
    file = await send(store, upload_form(b"\n\n"))

    assert (file.lines, [p.code for p in file.problems]) == (0, ["empty_file"])


async def test_a_file_of_more_requests_than_a_batch_may_hold_is_not_called_checked(store: Store) -> None:
    file = await send(store, upload_form(request_line("a") * 3), limits=Limits(intake=2))

    assert (file.checks, file.lines) == (0, 3)


REFUSED = {
    "empty": (upload_form(b""), EmptyFile),
    "no file": (form(part(*PURPOSE)), MissingParameter),
    "no purpose, after many chunks": (form(file_part(BIG)), MissingParameter),
    "another purpose, after many chunks": (form(file_part(BIG), part(b'name="purpose"', b"x")), InvalidParameter),
    "two files": (form(part(*PURPOSE), file_part(BIG), file_part(BIG)), InvalidParameter),
    "no closing boundary": (upload_form(BIG)[:-4], BadRequest),
    "cut in the middle": (upload_form(BIG)[: len(BIG) // 2], BadRequest),
    "garbage behind the boundary": (upload_form(BIG).replace(BOUNDARY + b"--", BOUNDARY + b"!!"), BadRequest),
    "over the limit": (upload_form(BIG + BIG + BIG), TooLarge),
}


@pytest.mark.parametrize("name", REFUSED)
async def test_a_refused_upload_leaves_nothing(store: Store, name: str) -> None:
    body, kind = REFUSED[name]

    with pytest.raises(kind):
        await send(store, body, step=65_536, limits=Limits(file_bytes=8 * MIB))

    assert await rows_left(store) == (0, 0)


async def test_a_body_that_is_no_form_is_not_read(store: Store) -> None:
    with pytest.raises(UnsupportedMediaType):
        await send(store, b"", content_type="application/json")


async def test_a_file_at_the_limit_is_accepted_and_one_byte_more_is_not(store: Store) -> None:
    limits = Limits(file_bytes=len(BIG))
    await send(store, upload_form(BIG), limits=limits)

    with pytest.raises(TooLarge) as caught:
        await send(store, upload_form(BIG + b"\n"), limits=limits)

    assert f"{len(BIG):,}" in caught.value.message
    assert f"{len(BIG) + 1:,}" in caught.value.message


async def test_a_body_announced_as_too_large_is_refused_unread(store: Store) -> None:
    read = []

    async def unread() -> AsyncIterator[bytes]:
        read.append(True)
        yield b""

    announced = Limits().file_bytes + 2 * MIB
    with pytest.raises(TooLarge) as caught:
        await receive(store, Limits(), 1, CONTENT_TYPE, unread(), announced=announced)

    assert f"{announced:,}" in caught.value.message
    assert not read


async def test_an_upload_whose_sender_goes_away_leaves_nothing(store: Store) -> None:
    async def body() -> AsyncIterator[bytes]:
        yield upload_form(BIG)[:-100]
        assert (await rows_left(store))[1] > 0
        raise Interrupted("gone")

    with pytest.raises(Interrupted):
        await receive(store, Limits(), await local_owner(store), CONTENT_TYPE, body())

    assert await rows_left(store) == (0, 0)


async def test_an_upload_that_is_cancelled_leaves_nothing(store: Store) -> None:
    waiting = asyncio.Event()

    async def body() -> AsyncIterator[bytes]:
        yield upload_form(BIG)[:-100]
        waiting.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(receive(store, Limits(), await local_owner(store), CONTENT_TYPE, body()))
    await waiting.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert await rows_left(store) == (0, 0)


async def test_nobody_sees_a_file_before_it_is_whole(store: Store) -> None:
    owner = await local_owner(store)

    async def body() -> AsyncIterator[bytes]:
        yield upload_form(BIG)[:-100]
        assert (await rows_left(store))[0] == 1
        listed, _ = await find.page(store, owner, purpose=None, limit=10, order="desc", after=None)
        assert listed == []
        yield upload_form(BIG)[-100:]

    file = await receive(store, Limits(), owner, CONTENT_TYPE, body())

    listed, _ = await find.page(store, owner, purpose=None, limit=10, order="desc", after=None)
    assert [f.no for f in listed] == [file.no]


async def test_an_upload_that_was_given_up_meanwhile_cannot_come_back(store: Store) -> None:
    async def body() -> AsyncIterator[bytes]:
        yield upload_form(BIG)[:-100]
        async with store.session() as session:
            await session.connection.execute("UPDATE file SET touched_at = now() - interval '16 minutes'")
        while await rows.purge_round(store):
            pass
        yield upload_form(BIG)[-100:]

    with pytest.raises(Interrupted):
        await receive(store, Limits(), await local_owner(store), CONTENT_TYPE, body())

    assert await rows_left(store) == (0, 0)


async def test_an_upload_too_slow_to_fill_a_chunk_is_not_given_up(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunks, "TOUCHED_EVERY", 0.0)

    async def body() -> AsyncIterator[bytes]:
        whole = upload_form(BIG)
        yield whole[:-200]
        async with store.session() as session:
            await session.connection.execute("UPDATE file SET touched_at = now() - interval '16 minutes'")
        yield whole[-200:-150]
        await rows.purge_round(store)
        yield whole[-150:]

    file = await receive(store, Limits(), await local_owner(store), CONTENT_TYPE, body())

    assert await stored_bytes(store, file) == BIG


async def test_no_connection_is_held_while_a_slow_sender_is_waited_for(store_url: str) -> None:
    store = await Store(store_url, most=1).open()
    try:
        owner = await local_owner(store)

        async def body() -> AsyncIterator[bytes]:
            whole = upload_form(BIG)
            for start in range(0, len(whole), 500_000):
                yield whole[start : start + 500_000]
                async with asyncio.timeout(60):
                    await rows_left(store)

        await receive(store, Limits(), owner, CONTENT_TYPE, body())
    finally:
        await store.close()


async def test_memory_does_not_grow_with_the_file(store: Store) -> None:
    lines = b"".join(request_line(f"id-{n}", "x" * 4_000) for n in range(256))
    head, tail = upload_form(b"#").split(b"#")

    async def body() -> AsyncIterator[bytes]:
        yield head
        for _ in range(64):
            yield lines
        yield tail

    tracemalloc.start()
    try:
        file = await receive(store, Limits(), await local_owner(store), CONTENT_TYPE, body())
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert file.bytes == 64 * len(lines) > 64 * MIB
    assert peak < 24 * MIB


async def test_two_uploads_at_once_do_not_mix(store: Store) -> None:
    texts = [b"".join(request_line(f"{name}-{n}", "x" * 1_000) for n in range(1_000)) for name in "abc"]

    files = await asyncio.gather(*(send(store, upload_form(text), step=30_000) for text in texts))

    assert [await stored_bytes(store, file) for file in files] == texts
