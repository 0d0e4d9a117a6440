"""Uploads of tests: begun, given parts and completed below HTTP, as the local owner unless another is given."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from overnight.domain import ids
from overnight.domain.limits import Limits
from overnight.files.uploads import create as creating
from overnight.files.uploads import part as parts
from overnight.files.uploads.complete import complete
from overnight.files.uploads.find import Upload
from overnight.files.uploads.request import Completion, NewUpload
from overnight.store.accounts import local_owner
from overnight.store.pool import Store
from tests.files.forms import BOUNDARY, CONTENT_TYPE, in_pieces

HEAD = b"--" + BOUNDARY + b'\r\nContent-Disposition: form-data; name="data"; filename="upload"\r\n\r\n'
TAIL = b"\r\n--" + BOUNDARY + b"--\r\n"


def part_form(content: bytes) -> bytes:
    """The form with which client libraries send a part."""
    return HEAD + content + TAIL


def cut_up(text: bytes, *places: int) -> list[bytes]:
    """A text cut at some places."""
    bounds = [0, *sorted(places), len(text)]
    return [text[start:stop] for start, stop in pairwise(bounds)]


def completion(part_ids: Sequence[str], md5: str | None = None) -> Completion:
    return Completion(tuple(ids.read(ids.PART, p) for p in part_ids), tuple(part_ids), md5)


class Parts:
    """One upload in a store."""

    def __init__(self, store: Store, owner: int, upload: Upload, limits: Limits) -> None:
        self.store = store
        self.owner = owner
        self.upload = upload
        self.limits = limits
        self.ids: list[str] = []

    async def add(self, *contents: bytes) -> list[str]:
        """Add parts one after the other and return all ids so far."""
        for content in contents:
            body = part_form(content)
            pieces = in_pieces([body[i : i + 60_000] for i in range(0, len(body), 60_000)])
            part = await parts.receive(self.store, self.owner, self.upload.public_id, CONTENT_TYPE, pieces)
            self.ids.append(ids.show(ids.PART, part.id))
        return self.ids

    async def complete(self, *, store: Store | None = None, md5: str | None = None) -> Upload:
        """Complete it with all its parts in the order in which they were added."""
        wanted = completion(self.ids, md5)
        return await complete(store or self.store, self.limits, self.owner, self.upload.public_id, wanted)


async def begin(
    store: Store, size: int, *, filename: str = "in.jsonl", owner: int | None = None, limits: Limits | None = None
) -> Parts:
    """Begin an upload of `size` bytes."""
    owner = owner or await local_owner(store)
    upload = await creating.create(store, limits or Limits(), owner, NewUpload(size, filename, None))
    return Parts(store, owner, upload, limits or Limits())
