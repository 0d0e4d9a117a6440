"""Interactive requests: passed on as they were written, answered as the model server does, while it does."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import httpx
import openai
import pytest

from overnight.catalog.route import Route
from overnight.catalog.routes import Routes
from overnight.catalog.upstream_route import UpstreamRoute
from overnight.domain.limits import Limits
from overnight.store.life import Life
from overnight.store.served import Offer
from overnight.store.served import serve as tell_served
from tests.api.conftest import Serve, ServedApp
from tests.upstreams.server import Peer, Server
from tests.worker.routes import Switch

CHAT = "/v1/chat/completions"
EMBEDDED = "input (300 tokens) is too large to process. increase the physical batch size (current batch size: 256)"
"""What llama.cpp says to an input that is too long to embed."""
ASKED = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
CHOICE = {"index": 0, "message": {"role": "assistant", "content": "yes"}, "finish_reason": "stop"}
ANSWER = json.dumps({"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [CHOICE]}).encode()
STREAM_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
Script = Callable[[Peer, bytes], Awaitable[None]]
Front = Callable[..., Awaitable["Behind"]]


def event(word: str) -> bytes:
    delta = {"index": 0, "delta": {"content": word}, "finish_reason": None}
    chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [delta]}
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"


def chunked(*pieces: bytes) -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)


async def answer(peer: Peer, _: bytes) -> None:
    await peer.answer(ANSWER, headers="Content-Type: application/json\r\n")


class Behind:
    """The application before model servers."""

    def __init__(self, app: ServedApp, routes: Routes, bodies: list[bytes]) -> None:
        self.app = app
        self.routes = routes
        self.bodies = bodies

    @property
    def http(self) -> httpx.AsyncClient:
        return self.app.http

    @property
    def in_flight(self) -> int:
        return sum(route.interactive for route in self.routes) + len(self.routes.load.models)

    async def ask(self, path: str = CHAT, **more: Any) -> httpx.Response:
        return await self.http.post(path, json=ASKED | more)

    def sdk(self) -> openai.AsyncOpenAI:
        return openai.AsyncOpenAI(base_url=f"{self.app.url}/v1", api_key="unused", max_retries=0)

    async def quiet(self) -> None:
        """Wait until nothing is in flight."""
        async with asyncio.timeout(60):
            while self.in_flight:
                await asyncio.sleep(0.001)


@pytest.fixture
async def front(serve: Serve) -> AsyncIterator[Front]:
    """Serves the application before a server for each script, which plays it for every POST."""
    async with AsyncExitStack() as stack:

        async def start(*scripts: Script, limits: Limits | None = None, more: tuple[Route, ...] = ()) -> Behind:
            bodies: list[bytes] = []

            def playing(script: Script) -> Callable[[Peer], Awaitable[None]]:
                async def play(peer: Peer) -> None:
                    while True:
                        came = await peer.read()
                        if came.line.startswith("GET"):
                            await peer.answer(b'{"data":[{"id":"m"}]}')
                        else:
                            bodies.append(came.body)
                            await script(peer, came.body)

                return play

            found: list[Route] = [*more]
            for script in scripts:
                server = await stack.enter_async_context(Server(playing(script)))
                found.append(UpstreamRoute(server.url, most_reply_bytes=lambda: 1_000_000))
            routes = Routes(found)
            stack.push_async_callback(routes.close)
            for route in routes:
                await route.tend()
            app = await serve(limits or Limits(), routes=routes)
            return Behind(app, routes, bodies)

        yield start


async def test_the_sdk_completes_and_the_body_arrives_as_it_was_written(front: Front) -> None:
    behind = await front(answer)
    async with behind.sdk() as sdk:
        raw = await sdk.chat.completions.with_raw_response.create(
            model="m", messages=[{"role": "user", "content": "hi"}], extra_body={"min_p": 0.25}
        )
    assert raw.parse().choices[0].message.content == "yes"
    assert raw.content == ANSWER
    assert raw.headers["x-request-id"].startswith("req_")
    written = b'{"messages" : [{"role":"user","content":"\\u00e9"}],\n "seed":12345678901234567890123, "model":"m"}'
    await behind.http.post(CHAT, content=written, headers={"content-type": "application/json"})
    assert json.loads(behind.bodies[0])["min_p"] == 0.25
    assert behind.bodies[1] == written
    assert behind.in_flight == 0


async def test_a_stream_is_passed_on_piece_by_piece(front: Front) -> None:
    seen = asyncio.Event()

    async def script(peer: Peer, _: bytes) -> None:
        await peer.say(STREAM_HEAD + chunked(event("one")))
        await seen.wait()
        await peer.say(chunked(event("two"), b"data: [DONE]\n\n") + b"0\r\n\r\n")

    behind = await front(script)
    words = []
    async with behind.sdk() as sdk:
        asked = sdk.chat.completions.create(model="m", messages=[{"role": "user", "content": "hi"}], stream=True)
        async for chunk in await asked:
            words.append(chunk.choices[0].delta.content)
            assert behind.routes.load.of("m") == 1 or seen.is_set()
            seen.set()
    assert words == ["one", "two"]
    assert json.loads(behind.bodies[0])["stream"] is True
    await behind.quiet()


async def test_the_sdk_that_blocks_streams_completes_text_and_embeds(front: Front) -> None:
    async def script(peer: Peer, body: bytes) -> None:
        if b'"input"' in body:
            data = [{"object": "embedding", "index": 0, "embedding": [0.5, 0.25]}]
            usage = {"prompt_tokens": 1, "total_tokens": 1}
            made = {"object": "list", "model": "m", "data": data, "usage": usage}
            await peer.answer(json.dumps(made).encode(), headers="Content-Type: application/json\r\n")
        else:
            await peer.say(STREAM_HEAD + chunked(event("one"), b"data: [DONE]\n\n") + b"0\r\n\r\n")

    behind = await front(script)

    def call() -> tuple[list[Any], list[float]]:
        with openai.OpenAI(base_url=f"{behind.app.url}/v1", api_key="unused", max_retries=0) as sdk:
            chunks = list(sdk.completions.create(model="m", prompt="once", stream=True))
            vector = sdk.embeddings.create(model="m", input="text", encoding_format="float").data[0].embedding
            return chunks, vector

    chunks, vector = await asyncio.to_thread(call)
    assert (len(chunks), vector) == (1, [0.5, 0.25])


async def test_a_caller_that_goes_away_stops_the_call(front: Front) -> None:
    left = asyncio.Event()

    async def script(peer: Peer, body: bytes) -> None:
        if b"stream" in body:
            await peer.say(STREAM_HEAD + chunked(event("one")))
        await peer.see_goodbye()
        left.set()

    behind = await front(script)
    async with behind.http.stream("POST", CHAT, json=ASKED | {"stream": True}) as response:
        async for _ in response.aiter_raw():
            break
    async with asyncio.timeout(60):
        await left.wait()
    await behind.quiet()
    left.clear()
    waits = asyncio.create_task(behind.ask())
    async with asyncio.timeout(60):
        while len(behind.bodies) < 2:
            await asyncio.sleep(0.001)
    waits.cancel()
    async with asyncio.timeout(60):
        await left.wait()
    await behind.quiet()


async def test_a_server_that_dies_between_events_ends_the_stream_with_an_error(front: Front) -> None:
    async def script(peer: Peer, _: bytes) -> None:
        await peer.say(STREAM_HEAD + chunked(event("one")))
        peer.reset()

    behind = await front(script)
    words = []
    async with behind.sdk() as sdk:
        asked = sdk.chat.completions.create(model="m", messages=[{"role": "user", "content": "hi"}], stream=True)
        with pytest.raises(openai.APIError) as told:  # noqa: PT012 - the stream is read until it breaks
            async for chunk in await asked:
                words.append(chunk.choices[0].delta.content)
    assert words == ["one"]
    assert isinstance(told.value.body, dict)
    assert told.value.body["code"] == "upstream_error"
    await behind.quiet()


@pytest.mark.parametrize(
    "said",
    [
        STREAM_HEAD + chunked(event("one")[:-9]),
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 900\r\n\r\n" + ANSWER[:50],
    ],
    ids=["an event", "a reply"],
)
async def test_a_reply_that_is_cut_in_the_middle_of_something_breaks_the_connection(front: Front, said: bytes) -> None:
    async def script(peer: Peer, _: bytes) -> None:
        await peer.say(said)
        peer.hang_up()

    behind = await front(script)
    with pytest.raises(httpx.RemoteProtocolError):
        await behind.ask()
    await behind.quiet()


async def test_a_slow_reader_slows_the_server_down(front: Front) -> None:
    """What a caller does not take is not gathered here."""
    sent = 0
    piece = chunked(b"x" * 65_536)

    async def script(peer: Peer, _: bytes) -> None:
        nonlocal sent
        await peer.say(STREAM_HEAD)
        for _number in range(1_000):
            await peer.say(piece)
            sent += 65_536
        await peer.say(b"0\r\n\r\n")

    behind = await front(script)
    async with behind.http.stream("POST", CHAT, json=ASKED) as response:
        before = -1
        while before != sent:
            before = sent
            await asyncio.sleep(0.1)
        assert sent < 40_000_000
        got = 0
        async for part in response.aiter_raw():
            got += len(part)
    assert got == 65_536_000


@pytest.mark.parametrize(
    ("status", "body", "shown"),
    [
        (
            "429 Too Many",
            {"error": {"message": "slow down", "type": "rate_limit_error", "param": None, "code": "rate_limited"}},
            ("slow down", "rate_limit_error", None, "rate_limited"),
        ),
        (
            "400 Bad",
            {"error": {"message": "no such thing", "type": "invalid_request_error", "param": "seed", "code": 400}},
            ("no such thing", "invalid_request_error", "seed", "invalid_request"),
        ),
        (
            "500 Shown as 400",
            {"error": {"code": 500, "message": EMBEDDED, "type": "server_error"}},
            ("Prompt length 300 exceeds model context 256", "invalid_request_error", None, "context_length_exceeded"),
        ),
        ("422 No", {"detail": "cannot"}, ("cannot", "invalid_request_error", None, "invalid_request")),
        (
            "500 Oh",
            "<html>",
            ("The upstream answered 500: <html>", "server_error", None, "upstream_error"),
        ),
        (
            "503 Wait",
            {"error": {"message": "no machine", "code": "model_queued"}},
            ("no machine", "server_error", None, "model_queued"),
        ),
    ],
)
async def test_what_a_server_refuses_is_shown_with_its_status_in_one_shape(
    front: Front, status: str, body: Any, shown: tuple[Any, ...]
) -> None:
    async def script(peer: Peer, _: bytes) -> None:
        said = body.encode() if isinstance(body, str) else json.dumps(body).encode()
        await peer.answer(said, status, "Retry-After: 3.2\r\n")

    behind = await front(script)
    response = await behind.ask()
    assert response.status_code == int(status.rpartition("Shown as ")[2][:3])
    told = response.json()["error"]
    assert (told["message"], told["type"], told["param"], told["code"]) == shown
    may_pass = response.status_code in (429, 500, 503)
    assert response.headers.get("retry-after") == ("4" if may_pass else None)
    assert "x-should-retry" not in response.headers
    await behind.quiet()


async def test_a_server_that_sends_no_reply_or_none_in_time_is_told_apart(front: Front) -> None:
    async def script(peer: Peer, body: bytes) -> None:
        if b"hang" in body:
            await peer.see_goodbye()
        await peer.say(b"this is no HTTP\r\n\r\n" if b"noise" in body else b"")
        peer.hang_up()

    limits = Limits(request_seconds=60.0)
    behind = await front(script, limits=limits)
    for content, status, code, header in (
        ("noise", 502, "upstream_error", "retry-after"),
        ("silence", 502, "upstream_error", "retry-after"),
        ("hang", 504, "timeout", "x-should-retry"),
    ):
        if content == "hang":
            limits.request_seconds = 0.2
        response = await behind.ask(messages=[{"role": "user", "content": content}])
        assert (response.status_code, response.json()["error"]["code"]) == (status, code), content
        assert header in response.headers, content


async def test_another_server_of_the_model_is_tried_before_the_first_byte(front: Front) -> None:
    async def busy(peer: Peer, _: bytes) -> None:
        await peer.answer(b'{"error":{"message":"full"}}', "429 Full")

    async def gone(peer: Peer, _: bytes) -> None:
        peer.reset()

    behind = await front(busy, gone, answer)
    assert (await behind.ask()).content == ANSWER
    assert len(behind.bodies) == 3
    assert [route.tally.refused for route in behind.routes] == [1, 1, 0]
    assert behind.in_flight == 0


async def test_a_refusal_that_stays_one_is_not_tried_elsewhere(front: Front) -> None:
    async def refuse(peer: Peer, _: bytes) -> None:
        await peer.answer(b'{"error":{"message":"bad"}}', "400 Bad")

    behind = await front(refuse, answer)
    assert (await behind.ask()).status_code == 400
    assert len(behind.bodies) == 1


@pytest.mark.parametrize(
    ("body", "code", "param"),
    [
        (b"nonsense", "invalid_json", None),
        (b"[]", "invalid_json", None),
        (b'{"model":"m","model":"m","messages":[]}', "invalid_json", None),
        (b'{"model":"m","messages":[{"role":"user","content":"\xff"}]}', "invalid_json", None),
        (b'{"model":"m","temperature":1e999,"messages":[{"role":"user","content":"a"}]}', "invalid_json", None),
        (b'{"messages":[{"role":"user","content":"a"}]}', "missing_required_parameter", "model"),
        (b'{"model":"m"}', "missing_required_parameter", "messages"),
        (b'{"model":7,"messages":[{"role":"user","content":"a"}]}', "invalid_parameter", "model"),
        (b'{"model":"m","messages":[{"role":"nobody","content":"a"}]}', "invalid_parameter", "messages[0].role"),
        (b'{"model":"m","messages":[{"role":"user","content":"a"}],"colour":1}', "invalid_parameter", "colour"),
        (b'{"model":"m","messages":[{"role":"user","content":"a"}],"stream":1}', "invalid_parameter", "stream"),
    ],
)
async def test_a_body_that_a_batch_would_refuse_is_refused_before_it_is_sent(
    front: Front, body: bytes, code: str, param: str | None
) -> None:
    behind = await front(answer)
    response = await behind.http.post(CHAT, content=body, headers={"content-type": "application/json"})
    assert (response.status_code, response.json()["error"]["code"]) == (400, code)
    assert response.json()["error"]["param"] == param
    assert behind.bodies == []


async def test_sizes_kinds_and_methods_are_refused_in_the_usual_shape(front: Front) -> None:
    behind = await front(answer, limits=Limits(line_bytes=200))
    fits = json.dumps(ASKED).encode()
    padded = fits + b" " * (200 - len(fits))
    for body, kind, status in ((padded, "json", 200), (padded + b" ", "json", 413), (fits, "xml", 415)):
        response = await behind.http.post(CHAT, content=body, headers={"content-type": f"application/{kind}"})
        assert response.status_code == status
    assert (await behind.http.get(CHAT)).status_code == 405
    assert len(behind.bodies) == 1


@pytest.mark.parametrize("path", [CHAT, f"{CHAT}/", f"/{CHAT}", CHAT.replace("chat", "ch%61t")])
async def test_however_the_address_is_spelled_the_answer_is_the_same_and_counted_alike(front: Front, path: str) -> None:
    count = 'overnight_api_seconds_count{method="POST",route="/v1/chat/completions",status="%d"}'
    behind = await front(answer)

    async def counted(status: int) -> float:
        lines = (await behind.http.get("/metrics")).text.splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(count % status))

    answered, refused = await counted(200), await counted(400)
    url = behind.app.url + path
    response = await behind.http.post(url, json=ASKED)
    assert (response.status_code, response.content) == (200, ANSWER)
    response = await behind.http.post(url, json=ASKED | {"model": 1})
    assert (response.status_code, response.json()["error"]["param"]) == (400, "model")
    assert response.headers["x-request-id"].startswith("req_")
    assert (await counted(200), await counted(400)) == (answered + 1, refused + 1)


async def test_models_that_cannot_be_reached_are_told_apart(front: Front) -> None:
    loading = Switch("http://127.0.0.1:9/v1")
    behind = await front(more=(loading,))
    store = behind.app.store
    life = Life(store)
    await life.begin()
    await tell_served(store, life.no, [Offer("elsewhere", ("far",), None, ("chat",)), Offer("*", (), None, ("chat",))])
    for model, path, status, code in (
        ("m", CHAT, 503, "service_unavailable"),
        ("far", CHAT, 503, "service_unavailable"),
        ("elsewhere", "/v1/embeddings", 404, "model_not_found"),
        ("nobody", CHAT, 404, "model_not_found"),
        ("auto", CHAT, 404, "model_not_found"),
    ):
        body = {"model": model, "input": "a"} if path != CHAT else ASKED | {"model": model}
        response = await behind.http.post(path, json=body)
        assert (response.status_code, response.json()["error"]["code"]) == (status, code), model
        assert ("retry-after" in response.headers) is (status == 503)
    async with behind.sdk() as sdk:
        with pytest.raises(openai.NotFoundError) as told:
            await sdk.embeddings.create(model="nobody", input="a")
    assert told.value.code == "model_not_found"


async def test_fields_that_a_server_would_drop_are_refused(front: Front) -> None:
    class Lacking(Switch):
        @property
        def offers(self) -> tuple[Offer, ...]:
            return (Offer("m", (), None, ("chat",), lacks=("best_of",)),)

        streams = UpstreamRoute.streams
        _streams: Any = object()

    behind = await front(more=(Lacking("http://127.0.0.1:9/v1"),))
    response = await behind.ask(best_of=2)
    assert (response.status_code, response.json()["error"]["param"]) == (400, "best_of")
