"""An answer whose body is read while it is sent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Any, cast

from litestar import Response
from litestar.response.base import ASGIResponse
from litestar.types import Receive, Scope, Send

from overnight.api.deps import Request


class Pieces(Response[AsyncIterator[bytes]]):
    """Sends what an async generator yields, a message each, as fast as the caller takes it.

    The first piece is there before the answer begins, so that what is wrong from the start is told by its status. What
    goes wrong later cuts the connection. The generator is closed in any case, also when the caller leaves.
    """

    def __init__(
        self, pieces: AsyncIterator[bytes], *, status_code: int, headers: Mapping[str, str], media_type: str
    ) -> None:
        super().__init__(pieces, status_code=status_code, headers=dict(headers), media_type=media_type)

    def to_asgi_response(self, app: object, request: Request, **_: Any) -> ASGIResponse:
        """What Litestar runs; its own defaults for this kind of route are all said here already."""
        return _Sent(
            cast("AsyncGenerator[bytes]", self.content),
            headers=self.headers,
            media_type=str(self.media_type),
            status_code=self.status_code,
        )


class _Sent(ASGIResponse):
    _should_set_content_length = False

    def __init__(self, pieces: AsyncGenerator[bytes], **given: Any) -> None:
        super().__init__(**given)
        self._pieces = pieces

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with aclosing(self._pieces) as pieces:
            piece: bytes | None = await anext(pieces, None)
            await self.start_response(send)
            left: asyncio.Task[None] | None = None
            try:
                while piece is not None and not (left and left.done()):
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
                    piece = await anext(pieces, None)
                    if piece is not None and left is None:
                        # Ends with this answer. One of a single piece, as most are, is spared it.
                        left = asyncio.create_task(wait_until_left(receive))
            finally:
                if left is not None:
                    left.cancel()
            if piece is None:
                await send({"type": "http.response.body", "body": b"", "more_body": False})


async def wait_until_left(receive: Callable[[], Awaitable[Any]]) -> None:
    """Wait until the caller goes away."""
    while (await receive())["type"] != "http.disconnect":
        pass
