"""Creates that can be repeated safely: the same call under the same key gives the batch that it made before."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from overnight.batches import find
from overnight.batches.request import cut_members, cut_requests
from overnight.batches.shape import BatchView
from overnight.domain.errors import BatchGone, InvalidParameter, KeyReused
from overnight.store import idempotency
from overnight.store.pool import Session, Store

HEADER = "Idempotency-Key"
TURN_REQUESTS = 64

_KEY = re.compile(r"[!-~]{1,255}")


@dataclass(frozen=True, slots=True)
class Key:
    """A key and what its call says."""

    text: str
    fingerprint: bytes
    size: int
    """Bytes of the call's body."""


def read_key(given: Sequence[str]) -> str | None:
    """The key of a call from the values of its header; None where it has none. Raises InvalidParameter."""
    if not given:
        return None
    if len(given) > 1 or not _KEY.fullmatch(given[0]):
        says = f"{HEADER} may be given once, as 1 to 255 visible ASCII characters."
        raise InvalidParameter(says, param=HEADER)
    return given[0]


async def known_size(store: Store, owner: int, key: str) -> int | None:
    """How long the body was that used a key of this owner's; None where nothing was made under it."""
    async with store.session() as session:
        row = await idempotency.find(session, owner, key)
    return None if row is None else row["bytes"]


async def replay(store: Store, owner: int, key: Key) -> BatchView | None:
    """The batch that was made under a key, as it is now; None where the key is new.

    Raises KeyReused where another call made it, and BatchGone where it has been deleted.
    """
    async with store.session() as session:
        return await replay_in_session(session, owner, key)


async def replay_in_session(session: Session, owner: int, key: Key) -> BatchView | None:
    """What `replay` does, as this connection sees it."""
    row = await idempotency.find(session, owner, key.text)
    if row is None:
        return None
    if row["request"] != key.fingerprint:
        raise KeyReused(f"Another request was made with this {HEADER}. Use a new key for each new request.")
    view = None if row["batch_id"] is None else await find.in_session(session, owner, row["batch_id"])
    if view is None:
        raise BatchGone(f"The batch that was made with this {HEADER} has been deleted. Use a new key for a new batch.")
    return view


async def remember(session: Session, owner: int, key: Key, batch: int) -> None:
    """Note in the transaction that makes a batch under which key it is made."""
    await idempotency.remember(session, owner=owner, key=key.text, request=key.fingerprint, size=key.size, batch=batch)


async def fingerprint(body: bytes) -> bytes:
    """SHA-256 of what a body says: its JSON with sorted keys, without white space, numbers as they were written.

    Empty for a body that cannot be read. That it is strict JSON is checked elsewhere, before it counts.
    """
    digest = hashlib.sha256()
    try:
        members = cut_members(body)
        for name in sorted(members):
            value = bytes(members[name])
            digest.update(_encode(name).encode())
            if name == "requests" and value.startswith(b"["):
                await _add_requests(digest, value)
            else:
                digest.update(_canonical(value))
    except (ValueError, RecursionError, msgspec.MsgspecError):
        return b""
    return digest.digest()


async def _add_requests(digest: hashlib._Hash, requests: bytes) -> None:
    digest.update(b"[")
    for number, request in enumerate(cut_requests(requests)):
        digest.update(_canonical(bytes(request)))
        digest.update(b",")
        if number % TURN_REQUESTS == 0:
            await asyncio.sleep(0)
    digest.update(b"]")


def _as_written(number: str) -> str:
    """A number as a text that no text of a strict body equals: half of a surrogate pair stands before it."""
    return "\ud800" + number


_decode = json.JSONDecoder(parse_int=_as_written, parse_float=_as_written).decode
_encode = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode


def _canonical(value: bytes) -> bytes:
    return _encode(_decode(value.decode())).encode()
