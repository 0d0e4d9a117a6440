"""What surrounds every call: its id, its headers, protection from web pages, its count, and the last catch."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from functools import lru_cache
from typing import Any, TypeAlias

from litestar.exceptions import LitestarException
from prometheus_client import Histogram

from overnight.api import errors, origin
from overnight.domain import ids
from overnight.domain.errors import NotReady

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
App: TypeAlias = Callable[[Any, Any, Any], Awaitable[None]]

BODY_IS_WHOLE = "body_is_whole"
"""Said by `protocol`, in a call's `state`, of a body that has come and needs no waiting for."""

_GIVEN_ID = re.compile(rb"[\x21-\x7e]{1,128}")

_ALWAYS = (
    # Results are whatever a model wrote: a browser must neither guess that they are a page
    # nor lend them to one.
    (b"x-content-type-options", b"nosniff"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
)

_TOOK = Histogram(
    "overnight_api_seconds",
    "Time from a call's first byte to the end of its answer.",
    ["method", "route", "status"],
    buckets=(0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 60, 600),
)


class Edge:
    """Wraps the application: the first to see a call and the last to see its answer."""

    def __init__(
        self, app: App, hosts: Iterable[str], stalled_seconds: float, fronts: Mapping[str, App] | None = None
    ) -> None:
        """`fronts` are called instead of it for a POST to their paths."""
        self._app = app
        self._fronts = fronts or {}
        self._hosts = frozenset(hosts)
        self._stalled = stalled_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            front = self._fronts.get(scope["path"]) if scope["method"] == "POST" else None
            await _Call(scope, receive, send, self._stalled).run(front or self._app, self._hosts)
        elif scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": 1000, "reason": ""})


class _Call:
    """One call: its id, whether its answer began, and whether its caller is still there."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, stalled_seconds: float) -> None:
        self._scope = scope
        self._receive = receive
        self._send = send
        self._stalled_seconds = stalled_seconds
        self._id = _id_of(scope)
        self._body_ended = False
        self._stalled = False
        self._status = 0

    async def run(self, app: App, hosts: frozenset[str]) -> None:
        scope = self._scope
        began = time.perf_counter()
        scope.setdefault("state", {})["request_id"] = self._id
        try:
            origin.check(scope["method"], scope["headers"], hosts)
            await app(scope, self.receive, self.send)
        except Exception as e:  # noqa: BLE001 - the edge of the process: the fault is told and answered
            await self._fail(e)
        except asyncio.CancelledError:
            await self._fail(NotReady("The server stops, and the time for what was under way is over. Send it again."))
            raise
        finally:
            route = scope.get("path_template") or "none"
            _took(scope["method"], route, self._status).observe(time.perf_counter() - began)

    async def receive(self) -> Message:
        """Hand the next piece of the body on; one that does not come in time ends the call as if its caller left."""
        if self._body_ended or self._scope["state"].get(BODY_IS_WHOLE):
            return await self._receive()
        try:
            async with asyncio.timeout(self._stalled_seconds):
                message = await self._receive()
        except TimeoutError:
            self._stalled = True
            return {"type": "http.disconnect"}
        self._body_ended = message["type"] != "http.request" or not message.get("more_body")
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._status = message["status"]
            headers = [*message["headers"], (b"x-request-id", self._id.encode()), *_ALWAYS]
            if self._stalled:
                # What still comes belongs to the body that was given up.
                headers.append((b"connection", b"close"))
            message = {**message, "headers": headers}
        await self._send(message)

    async def _fail(self, error: Exception) -> None:
        shown = errors.explain(_cause(error), self._scope["method"], self._scope["path"], self._id)
        if self._status:
            # The answer has begun: it stays incomplete, so that the server cuts the connection and the caller sees it.
            return
        headers = {"content-type": "application/json", "content-length": str(len(shown.body)), **shown.headers}
        raw = [(name.encode(), value.encode()) for name, value in headers.items()]
        await self.send({"type": "http.response.start", "status": shown.status, "headers": raw})
        await self.send({"type": "http.response.body", "body": shown.body, "more_body": False})


@lru_cache(1_024)
def _took(method: str, route: str, status: int) -> Histogram:
    return _TOOK.labels(method, route, status)


def _id_of(scope: Scope) -> str:
    given = next((value for name, value in scope["headers"] if name == b"x-request-id"), b"")
    if _GIVEN_ID.fullmatch(given):
        return given.decode("ascii")
    return ids.new_text(ids.REQUEST, time.time_ns() // 1_000_000)


def _cause(error: BaseException) -> Exception:
    """The fault itself, out of the wrappings that the framework puts around what fails in a stream."""
    while True:
        if isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
            error = error.exceptions[0]
        elif isinstance(error, LitestarException) and isinstance(error.__cause__, Exception):
            error = error.__cause__
        else:
            assert isinstance(error, Exception)
            return error
