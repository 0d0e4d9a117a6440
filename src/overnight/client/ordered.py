"""Results line by line: continued after the last whole line that came."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable
from functools import partial
from pathlib import Path

import httpx

from overnight.client.edge import Edge
from overnight.client.sending import RETRIES, disconnected, exchange, wait_before

Ask = Callable[[int], httpx.Request]
"""Makes a request for the lines after the first so many."""


async def fetch_lines(edge: Edge, ask: Ask, part: Path) -> None:
    """Bring all lines to `part`, which is begun anew.

    Raises ApiError, and ConnectionFailed after some failures in a row without any progress.
    """
    lines = _Lines(part)
    failures = 0
    try:
        while True:
            before = lines.whole
            response = await exchange(edge, lambda: ask(lines.whole), patient=True, stream=True)
            try:
                pieces = edge.pieces(response)
                while piece := await edge.next(pieces):
                    await edge.run(lines.add, piece)
                return
            except httpx.RequestError as e:
                await edge.run(lines.cut)
                failures = 0 if lines.whole > before else failures + 1
                if failures > RETRIES:
                    raise disconnected(response.request, e) from e
                await edge.sleep(wait_before(failures))
            finally:
                await edge.end(response)
    finally:
        await edge.run(lines.close)


async def read_lines(edge: Edge, ask: Ask) -> AsyncGenerator[bytes, None]:
    """The lines as they come, each whole.

    Raises ApiError, and ConnectionFailed after some failures in a row without any progress.
    """
    whole = failures = 0
    while True:
        before = whole
        response = await exchange(edge, partial(ask, whole), patient=True, stream=True)
        try:
            pieces = edge.pieces(response)
            rest = b""
            while piece := await edge.next(pieces):
                *lines, rest = (rest + piece).split(b"\n")
                for line in lines:
                    whole += 1
                    yield line
            if rest:
                yield rest
            return
        except httpx.RequestError as e:
            failures = 0 if whole > before else failures + 1
            if failures > RETRIES:
                raise disconnected(response.request, e) from e
            await edge.sleep(wait_before(failures))
        finally:
            await edge.end(response)


def keep_answered(part: Path) -> None:
    """Leave out of a file of results the lines without a response."""
    kept = part.with_name(part.name + ".kept")
    with part.open("rb") as all_lines, kept.open("wb") as answered:
        answered.writelines(line for line in all_lines if json.loads(line)["response"] is not None)
    kept.replace(part)


class _Lines:
    """A file that grows by pieces and can be cut back to its last whole line."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb")
        self._end = 0
        self.whole = 0
        """Lines that have come to their end."""

    def add(self, piece: bytes) -> None:
        at = self._file.tell()
        self._file.write(piece)
        self.whole += piece.count(b"\n")
        if (last := piece.rfind(b"\n")) >= 0:
            self._end = at + last + 1

    def cut(self) -> None:
        self._file.seek(self._end)
        self._file.truncate()

    def close(self) -> None:
        self._file.close()
