"""The real application behind a real HTTP server on a loopback port, over a real database."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from overnight.api.app import Deps, create_app
from overnight.api.listen import listening
from overnight.domain.limits import Limits
from overnight.loops import Bell
from overnight.store import accounts
from overnight.store.pool import Store
from tests.api import described


class CountingBell(Bell):
    """A bell that knows how often it was rung."""

    rung = 0

    def ring(self) -> None:
        self.rung += 1
        super().ring()


@dataclass
class ServedApp:
    """An address, and what is behind it."""

    url: str
    http: httpx.AsyncClient
    store: Store
    deps: Deps
    bell: CountingBell
    reason: str | None = None
    """Set it to make the process unwell."""

    async def upload(self, *requests: dict[str, Any]) -> dict[str, Any]:
        """Upload an input file with these requests, and return the file object."""
        text = "".join(json.dumps(r) + "\n" for r in requests)
        response = await self.http.post("/v1/files", data={"purpose": "batch"}, files={"file": ("in.jsonl", text)})
        assert response.status_code == 200, response.text
        file: dict[str, Any] = response.json()
        return file

    async def create(self, **fields: Any) -> dict[str, Any]:
        """Create a batch of one request, and return the batch object."""
        file = await self.upload(request())
        given = {"input_file_id": file["id"], "endpoint": "/v1/chat/completions", **fields}
        response = await self.http.post("/v1/batches", json=given)
        assert response.status_code == 200, response.text
        batch: dict[str, Any] = response.json()
        return batch


def request(custom_id: str = "one", **body: Any) -> dict[str, Any]:
    """A request of an input file."""
    chat = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}], **body}
    return {"custom_id": custom_id, "method": "POST", "url": "/v1/chat/completions", "body": chat}


LOCAL = Limits()
Serve = Callable[..., Awaitable[ServedApp]]


@pytest.fixture
async def serve(store: Store) -> AsyncIterator[Serve]:
    """Serve the application over `store`; limits and other `Deps` may be given.

    Whatever is answered to `http` is held against the OpenAPI document.
    """
    async with contextlib.AsyncExitStack() as stack:

        async def start(limits: Limits = LOCAL, **more: Any) -> ServedApp:
            bell = CountingBell()
            deps = Deps(store, limits, await accounts.local_owner(store), health=lambda: well(), bell=bell)
            deps = dataclasses.replace(deps, **more)
            url = (await stack.enter_async_context(listening(create_app(deps), "127.0.0.1", 0))).url
            hooks = {"response": [described.check]}
            client = httpx.AsyncClient(base_url=url, trust_env=False, timeout=60, event_hooks=hooks)
            http = await stack.enter_async_context(client)
            served = ServedApp(url, http, store, deps, bell)

            async def well() -> str | None:
                return served.reason

            return served

        yield start


@pytest.fixture
async def served_app(serve: Serve) -> ServedApp:
    """The application with the limits of local mode."""
    return await serve()
