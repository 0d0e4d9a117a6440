"""Downloads: continued where they broke off, checked against the server's SHA-256, there whole or not at all."""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
import shutil
from collections.abc import Callable
from pathlib import Path

import httpx

from overnight.client.edge import Edge
from overnight.client.errors import ApiError, DownloadDamaged
from overnight.client.sending import RETRIES, disconnected, exchange, wait_before

Ask = Callable[[dict[str, str]], httpx.Request]
"""Makes a request for the content, with these headers."""

_PIECE = 1 << 20


def part_of(target: Path, file_id: str) -> Path:
    """Where the bytes of a file gather until they are all there: beside the target, so that it can be renamed."""
    return target.with_name(f".{target.name}.{file_id}.part")


def check_target(target: Path) -> None:
    """Raise OSError where no file can be put at `target`: it is a folder, or what should be its folder is none."""
    if target.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(target))
    # Rights don't tell everything: only a file that is made shows that the results can be gathered there.
    trial = part_of(target, secrets.token_hex(16))
    trial.touch(exist_ok=False)
    trial.unlink()


async def fetch(edge: Edge, ask: Ask, part: Path, size: int, sha256: str) -> None:
    """Bring a whole file of so many bytes to `part`, going on from what is there of it already.

    Raises ConnectionFailed after some failures in a row without any progress: then `part` stays, for another time.
    Raises ApiError, and DownloadDamaged where the bytes are wrong even after a fresh start: then `part` is removed.
    """
    download = _Download(edge, ask, part, size, sha256)
    begun = await edge.run(download.open)
    try:
        sound = await download.run()
        if not sound and begun:
            # What an earlier run left behind may be what is wrong.
            await edge.run(part.unlink)
            await edge.run(download.open)
            sound = await download.run()
    except ApiError:
        await edge.run(part.unlink)
        raise
    if not sound:
        await edge.run(part.unlink)
        raise DownloadDamaged(f"What came for {part.name} does not have the SHA-256 that the server gave: {sha256}.")


async def fetch_unchecked(edge: Edge, ask: Ask, part: Path) -> None:
    """Bring a whole file to `part` from a server that gives no SHA-256: after a break all of it comes again.

    Raises ApiError, and ConnectionFailed after some failures in a row.
    """
    for failures in range(1, RETRIES + 2):
        response = await exchange(edge, lambda: ask({}), patient=True, stream=True)
        file = await edge.run(part.open, "wb")
        try:
            pieces = edge.pieces(response)
            while piece := await edge.next(pieces):
                await edge.run(file.write, piece)
            return
        except httpx.RequestError as e:
            if failures > RETRIES:
                raise disconnected(response.request, e) from e
            await edge.sleep(wait_before(failures))
        finally:
            await edge.run(file.close)
            await edge.end(response)


def put_together(parts: list[Path], target: Path) -> None:
    """Make `target` of the parts, in their order, at once: it is never seen half-written. The parts are gone then."""
    with parts[0].open("ab") as whole:
        for part in parts[1:]:
            with part.open("rb") as more:
                shutil.copyfileobj(more, whole, _PIECE)
        whole.flush()
        os.fsync(whole.fileno())
    parts[0].replace(target)
    for part in parts[1:]:
        part.unlink()


class _Download:
    """A file on its way to `part`, of which `have` bytes are there."""

    def __init__(self, edge: Edge, ask: Ask, part: Path, total: int, sha256: str) -> None:
        self._edge = edge
        self._ask = ask
        self._part = part
        self._total = total
        self._sha256 = sha256
        self._have = 0
        self._digest = hashlib.sha256()

    def open(self) -> bool:
        """Open the part and take account of what is in it; say whether there was anything."""
        self._file = self._part.open("a+b")
        self._have = 0
        self._digest = hashlib.sha256()
        self._file.seek(0)
        while piece := self._file.read(_PIECE):
            self._digest.update(piece)
            self._have += len(piece)
        if self._have > self._total:
            self._clear()
            return True
        return self._have > 0

    async def run(self) -> bool:
        """Bring what is missing, and say whether the whole is what the server has."""
        try:
            await self._bring()
        finally:
            await self._edge.run(self._file.close)
        return self._have == self._total and self._digest.hexdigest() == self._sha256

    async def _bring(self) -> None:
        failures = 0
        while self._have < self._total:
            before = self._have
            response = await exchange(self._edge, self._ask_for_rest, patient=True, stream=True)
            try:
                await self._take(response)
                if self._have <= before:
                    return
            except httpx.RequestError as e:
                failures = 0 if self._have > before else failures + 1
                if failures > RETRIES:
                    raise disconnected(response.request, e) from e
                await self._edge.sleep(wait_before(failures))
            finally:
                await self._edge.end(response)

    def _ask_for_rest(self) -> httpx.Request:
        # The server's ETag of a file is its SHA-256.
        return self._ask({"range": f"bytes={self._have}-", "if-range": f'"{self._sha256}"'} if self._have else {})

    async def _take(self, response: httpx.Response) -> None:
        if response.status_code != 206:
            await self._edge.run(self._clear)
        pieces = self._edge.pieces(response)
        while piece := await self._edge.next(pieces):
            await self._edge.run(self._add, piece)

    def _add(self, piece: bytes) -> None:
        self._file.write(piece)
        self._digest.update(piece)
        self._have += len(piece)

    def _clear(self) -> None:
        self._file.truncate(0)
        self._digest = hashlib.sha256()
        self._have = 0
