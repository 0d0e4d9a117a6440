"""/v1/chat/completions, /v1/completions and /v1/embeddings: what is asked now and waited for."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from litestar import Response, post

from overnight.api import errors
from overnight.api.auth import account_of
from overnight.api.body import read_json
from overnight.api.deps import Deps, Request, deps_of
from overnight.api.middleware import App, Receive, Scope, Send
from overnight.api.pieces import wait_until_left
from overnight.domain.errors import Interrupted
from overnight.domain.targets import TARGETS
from overnight.interactive.asked import read_asked
from overnight.interactive.asking import Asking
from overnight.interactive.refused import Refused
from overnight.upstreams.streamed import CutError, Head

STREAM = b"text/event-stream"


@dataclass(frozen=True, slots=True)
class _Came:
    """A call as the HTTP server hands it over."""

    scope: Scope
    receive: Receive


class Front:
    """The application behind one of the addresses.

    The framework's layers around a handler take longer than all that is done here, so it is called before them, by
    `middleware`; the framework's own route to it is for the other spellings of the address, and for the reference.
    """

    def __init__(self, deps: Deps, url: str) -> None:
        self._deps = deps
        self._url = url

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer with what a model server replies, while it comes."""
        scope["path_template"] = self._url
        deps = self._deps
        account_of(deps)
        asked = read_asked(TARGETS[self._url], await read_json(_Came(scope, receive), deps.limits.line_bytes))
        await _Passing(Asking(deps.store, deps.routes, deps.limits, asked)).answer(receive, send)


def fronts(deps: Deps) -> Mapping[str, App]:
    """What is called for a POST to which path."""
    return {url: Front(deps, url) for route in ROUTES for url in route.paths}


class _Passing:
    """Answers with what a model server replies, while it comes. The server's call ends when the caller goes away."""

    def __init__(self, asking: Asking) -> None:
        self._asking = asking

    async def answer(self, receive: Receive, send: Send) -> None:
        # Ended below, in any case.
        watch = asyncio.create_task(wait_until_left(receive))
        watch.add_done_callback(lambda _: self._asking.cancel())
        try:
            begun = await self._asking.begin()
            if watch.done():
                raise Interrupted("The caller went away.")
            if isinstance(begun, Refused):
                await _send_whole(send, errors.of_upstream(begun))
            else:
                await self._pass_on(begun, send)
        finally:
            watch.cancel()
            self._asking.cancel()

    async def _pass_on(self, head: Head, send: Send) -> None:
        await send({"type": "http.response.start", "status": head.status, "headers": _headers(head)})
        tail = b""
        is_stream = _kind(head) == STREAM
        try:
            while piece := await self._asking.next():
                has_more = not self._asking.is_whole
                await send({"type": "http.response.body", "body": piece, "more_body": has_more})
                if not has_more:
                    return
                tail = (tail + piece)[-4:]
        except CutError as cut:
            if not is_stream or (not tail.endswith((b"\n\n", b"\r\n\r\n", b"\r\r")) and tail):
                # The caller sees the connection break before the body is whole.
                raise Interrupted("The model server's reply broke off.") from None
            await send({"type": "http.response.body", "body": errors.as_event(cut.broken.message), "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _send_whole(send: Send, shown: errors.Answer) -> None:
    headers = {"content-type": "application/json", "content-length": str(len(shown.body)), **shown.headers}
    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": shown.status, "headers": raw})
    await send({"type": "http.response.body", "body": shown.body, "more_body": False})


def _headers(head: Head) -> list[tuple[bytes, bytes]]:
    headers = [(b"content-type", head.content_type.encode("latin-1") if head.content_type else b"application/json")]
    if head.length is not None and head.length.isdecimal():
        headers.append((b"content-length", head.length.encode()))
    if head.encoding is not None:
        headers.append((b"content-encoding", head.encoding.encode("latin-1")))
    if _kind(head) == STREAM:
        # Proxies that would gather the pieces leave them alone.
        headers += [(b"cache-control", b"no-cache"), (b"x-accel-buffering", b"no")]
    return headers


def _kind(head: Head) -> bytes:
    return (head.content_type or "").partition(";")[0].strip().lower().encode("latin-1")


class _Fronted(Response[None]):
    """Hands the call on to the application behind an address."""

    def __init__(self, front: Front) -> None:
        super().__init__(None)
        self._front = front

    def to_asgi_response(self, *_: Any, **__: Any) -> App:  # type: ignore[override]
        """The application that answers."""
        return self._front


@post("/v1/chat/completions", status_code=200)
async def complete_chat(request: Request) -> _Fronted:
    """Answer a chat now, as its model does, streamed or whole."""
    return _Fronted(Front(deps_of(request), "/v1/chat/completions"))


@post("/v1/completions", status_code=200)
async def complete_text(request: Request) -> _Fronted:
    """Go on with a text now, streamed or whole."""
    return _Fronted(Front(deps_of(request), "/v1/completions"))


@post("/v1/embeddings", status_code=200)
async def embed(request: Request) -> _Fronted:
    """Turn texts into vectors now."""
    return _Fronted(Front(deps_of(request), "/v1/embeddings"))


ROUTES = [complete_chat, complete_text, embed]
