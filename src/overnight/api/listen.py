"""Listens on an address and hands what comes to the app, until told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from math import ceil
from typing import Any

import uvicorn

from overnight.api.protocol import Protocol
from overnight.domain.errors import Unusable
from overnight.monotonic import monotonic

LEAST_GRACE = 5.0
"""Seconds in which calls that came while batches had their grace are answered."""


@asynccontextmanager
async def listening(app: Any, host: str, port: int) -> AsyncIterator[Http]:
    """Answer at `host` and `port` (0: a free one) while the block runs.

    Raises Unusable where the address is taken or not this machine's.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        bound = socket.create_server((host, port), family=family, backlog=2048)
    except OSError as e:
        # The text of the error names the address once more.
        why = os.strerror(e.errno) if e.errno and e.errno > 0 else str(e.strerror)
        raise Unusable(f"The address {host}:{port} cannot be used ({why}). Name another with --port.") from None
    # Without it, the body of an answer may wait 40 ms for the caller's acknowledgement of the headers.
    bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    config = uvicorn.Config(
        app,
        http=Protocol,
        ws="none",
        # Nobody asks who the caller behind a proxy is.
        proxy_headers=False,
        log_config=None,
        access_log=False,
        lifespan="off",
        server_header=False,
        timeout_keep_alive=75,
    )
    shown = f"[{host}]" if ":" in host else host
    http = Http(config, f"http://{shown}:{bound.getsockname()[1]}")
    # Ended and awaited below.
    task = asyncio.create_task(http.serve(sockets=[bound]), name="http")
    try:
        yield http
    finally:
        http.stop()
        await task
        bound.close()


class Http(uvicorn.Server):
    """uvicorn without its signal handlers: the process decides itself when to stop.

    It waits to be told so, where uvicorn's own looks ten times a second; what else those looks do, `Protocol` does.
    """

    def __init__(self, config: uvicorn.Config, url: str) -> None:
        super().__init__(config)
        self.url = url
        self.stop_by = 0.0
        """By the monotonic clock, until when calls under way may last; LEAST_GRACE after they are told at least."""
        self._told = asyncio.Event()

    def stop(self) -> None:
        """Take no more calls, and end once those under way have ended."""
        self.config.timeout_graceful_shutdown = ceil(max(self.stop_by - monotonic(), LEAST_GRACE))
        self.should_exit = True
        self._told.set()

    def hurry(self) -> None:
        """Let the grace of a stop end now."""
        self.stop_by = 0.0
        for task in self.server_state.tasks:
            task.cancel()

    async def main_loop(self) -> None:
        await self._told.wait()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
