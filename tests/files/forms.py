"""Forms as clients send them, and uploads made from them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable
from typing import Any

from overnight.domain.limits import Limits
from overnight.files.shape import StoredFile
from overnight.files.upload import receive
from overnight.store.accounts import local_owner
from overnight.store.pool import Store

BOUNDARY = b"----d74496d66958873e"
CONTENT_TYPE = f"multipart/form-data; boundary={BOUNDARY.decode()}"
PURPOSE = b'name="purpose"', b"batch"


def request_line(custom_id: str = "a", content: str = "hi") -> bytes:
    """A valid line of an input file, with its line end."""
    body = {"model": "m", "messages": [{"role": "user", "content": content}]}
    request = {"custom_id": custom_id, "method": "POST", "url": "/v1/chat/completions", "body": body}
    return json.dumps(request).encode() + b"\n"


def part(disposition: bytes, content: bytes, more_headers: bytes = b"") -> bytes:
    head = b"--" + BOUNDARY + b"\r\nContent-Disposition: form-data; " + disposition + b"\r\n" + more_headers
    return head + b"\r\n" + content + b"\r\n"


def file_part(content: bytes, filename: bytes = b'; filename="in.jsonl"') -> bytes:
    return part(b'name="file"' + filename, content, b"Content-Type: application/jsonl\r\n")


def form(*parts: bytes) -> bytes:
    return b"".join(parts) + b"--" + BOUNDARY + b"--\r\n"


def upload_form(content: bytes, **fields: str) -> bytes:
    """The form that client libraries send; `fields` replace or add to `purpose`."""
    given = {"purpose": "batch"} | {name.replace("_seconds", "[seconds]"): value for name, value in fields.items()}
    return form(*(part(f'name="{n}"'.encode(), v.encode()) for n, v in given.items()), file_part(content))


async def in_pieces(body: Iterable[bytes]) -> AsyncIterator[bytes]:
    for piece in body:
        yield piece


async def send(store: Store, body: bytes, *, step: int | None = None, **given: Any) -> StoredFile:
    """Send a whole form, in pieces of `step` bytes, as the local owner unless another is given."""
    step = step or len(body) or 1
    pieces = [body[i : i + step] for i in range(0, len(body), step)]
    owner = given.pop("owner", None) or await local_owner(store)
    limits = given.pop("limits", Limits())
    content_type = given.pop("content_type", CONTENT_TYPE)
    return await receive(store, limits, owner, content_type, in_pieces(pieces), **given)


async def add_account(store: Store, name: str) -> int:
    async with store.session() as session:
        no: int = await session.connection.fetchval(
            "INSERT INTO account (name, role) VALUES ($1, 'free') RETURNING no", name
        )
    return no


async def rows_left(store: Store) -> tuple[int, int]:
    """How many rows of files and of chunks there are, in whatever state."""
    async with store.session() as session:
        files: int = await session.connection.fetchval("SELECT count(*) FROM file")
        chunks: int = await session.connection.fetchval("SELECT count(*) FROM file_chunk")
    return files, chunks
