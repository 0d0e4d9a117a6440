"""Both clients, called in the same way; and the served application to call."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from overnight.client import AsyncClient, Client
from tests.api.conftest import serve as serve
from tests.api.conftest import served_app as served_app


class Caller:
    """Calls the one or the other client by the names of its methods.

    Waits are noted down instead of waited for, and its clock goes on by them.
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.waits: list[float] = []
        self._open: list[Client | AsyncClient] = []

    def client(self, *args: Any, **kwargs: Any) -> Client | AsyncClient:
        made = Client(*args, **kwargs) if self.kind == "blocking" else AsyncClient(*args, **kwargs)
        calls = made._calls if isinstance(made, Client) else made
        calls._edge.sleep = self._note  # type: ignore[method-assign]
        calls._edge.now = lambda: sum(self.waits)  # type: ignore[method-assign]
        self._open.append(made)
        return made

    async def _note(self, seconds: float) -> None:
        self.waits.append(seconds)

    async def __call__(self, client: Client | AsyncClient, name: str, *args: Any, **kwargs: Any) -> Any:
        method = getattr(client, name)
        if self.kind == "blocking":
            return await asyncio.to_thread(method, *args, **kwargs)
        return await method(*args, **kwargs)

    async def close(self) -> None:
        for client in self._open:
            await self(client, "close")


@pytest.fixture(params=["blocking", "async"])
async def call(request: pytest.FixtureRequest) -> AsyncIterator[Caller]:
    caller = Caller(request.param)
    yield caller
    await caller.close()
