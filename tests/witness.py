"""A model server for tests that does as the requests say, and remembers what was really sent to it.

The last user message of a chat (or the prompt, or the input) may begin with an instruction in brackets:
`[status 500]`, `[status 429 after 1]`, `[once 500]` (only the first time), `[slow 2]` (seconds), `[held name]` (until
`let` is called with the name), `[cut]` (closes in the middle of the body), `[silent]` (closes without a word),
`[garbage]`, `[error200]` (200 with an error object), `[latin1]` (not UTF-8), `[big 20]` (MB), `[nan]`, `[think]` (an
answer with `reasoning_content`). A stream is sent in two events, `[slow 2]` between them.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
import threading
from collections import Counter, defaultdict
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Self

INSTRUCTION = re.compile(r"\[(\w+)(?: ([^\s\]]+))?(?: after (\S+))?\]")
MODELS = ("test-model", "other-model")


class Witness:
    """Runs in a thread of its own, so that it answers whatever the test's own loop is doing."""

    def __init__(self, seconds: float = 0.0, *, most: float = math.inf, lists_models: bool = True) -> None:
        self.seconds = seconds
        """How long every answer takes."""
        self.most = most
        """How many requests are answered; those that arrive later wait for `answer_more` or `go_on`."""
        self.lists_models = lists_models
        """A server that does not is taken to serve every model."""
        self.seen: Counter[str] = Counter()
        """How often each input arrived."""
        self.bodies: list[dict[str, Any]] = []
        self.keys: set[str | None] = set()
        self.at_once = 0
        self.most_at_once = 0
        self.arrived = threading.Condition()
        self._started: Future[int] = Future()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="witness", daemon=True)
        self._open: set[asyncio.StreamWriter] = set()
        self._doors: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)

    def __enter__(self) -> Self:
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._started.result(60)}/v1"
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(60)

    def wait_for(self, requests: int, seconds: float = 180) -> None:
        """Return when so many requests have arrived."""
        with self.arrived:
            if not self.arrived.wait_for(lambda: sum(self.seen.values()) >= requests, seconds):
                raise TimeoutError(f"{sum(self.seen.values())} of {requests} requests arrived in {seconds} s")

    def let(self, name: str) -> None:
        """Answer what is held under this name, and what comes with it from now on."""
        self._loop.call_soon_threadsafe(lambda: self._doors[name].set())

    def answer_more(self) -> None:
        """Answer from now on as many as come, each in its time."""
        self._loop.call_soon_threadsafe(self._more.set)

    def go_on(self) -> None:
        """Answer at once from now on, also what waits."""
        self.seconds = 0.0
        self.answer_more()
        self._loop.call_soon_threadsafe(self._hurry.set)

    def _run(self) -> None:
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self) -> None:
        self._stop = asyncio.Event()
        self._hurry, self._more = asyncio.Event(), asyncio.Event()
        server = await asyncio.start_server(self._talk, "127.0.0.1", 0, limit=16 * 2**20)
        self._started.set_result(server.sockets[0].getsockname()[1])
        await self._stop.wait()
        server.close()
        for writer in self._open:
            writer.transport.abort()
        rest = asyncio.all_tasks() - {asyncio.current_task()}
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        try:
            while await self._answer(reader, writer):
                pass
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self._open.discard(writer)
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        method, path, _ = head.split(" ", 2)
        length = re.search(r"content-length: (\d+)", head, re.IGNORECASE)
        body = await reader.readexactly(int(length[1])) if length else b""
        key = re.search(r"authorization: bearer (\S+)", head, re.IGNORECASE)
        if path.endswith("/models"):
            if not self.lists_models:
                return await _send(writer, 404, {"error": {"message": "no list", "type": "test", "code": None}})
            return await _send(writer, 200, {"object": "list", "data": [{"id": m, "object": "model"} for m in MODELS]})
        if method == "GET":
            return await _send(writer, 404, {"error": {"message": "not here", "type": "test", "code": None}})
        request = json.loads(body)
        text = _input(request)
        with self.arrived:
            self.seen[text] += 1
            self.bodies.append(request)
            place = len(self.bodies)
            self.keys.add(key[1] if key else None)
            self.arrived.notify_all()
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await self._hold(place, text)
            return await (_stream if request.get("stream") else self._do)(writer, path, request, text)
        finally:
            self.at_once -= 1

    async def _hold(self, place: int, text: str) -> None:
        if place > self.most:
            await self._more.wait()
        said = INSTRUCTION.match(text)
        if said and said[1] == "held":
            await self._doors[said[2]].wait()

    async def _take_time(self) -> None:
        try:
            await asyncio.wait_for(self._hurry.wait(), self.seconds)
        except TimeoutError:
            return

    async def _do(self, writer: asyncio.StreamWriter, path: str, request: dict[str, Any], text: str) -> bool:
        said = INSTRUCTION.match(text)
        verb, number, after = said.groups() if said else ("", None, None)
        await (asyncio.sleep(float(number or 0)) if verb == "slow" else self._take_time())
        if verb == "status" or (verb == "once" and self.seen[text] == 1):
            error = {"error": {"message": f"told to answer {number}", "type": "test", "code": None}}
            return await _send(writer, int(number or 500), error, {"Retry-After": after} if after else {})
        if verb == "silent":
            return False
        if verb == "garbage":
            writer.write(b"\x00\x01 this is no HTTP at all\r\n\r\n")
            await writer.drain()
            return False
        if verb == "cut":
            writer.write(b'HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n{"id":"x"')
            await writer.drain()
            return False
        if verb == "error200":
            return await _send(
                writer, 200, {"error": {"message": "out of memory", "type": "server_error", "code": 500}}
            )
        if verb == "latin1":
            return await _send(writer, 200, b'{"id":"x","choices":[{"message":{"content":"caf\xe9"}}]}')
        if verb == "nan":
            return await _send(writer, 200, b'{"id":"x","choices":[],"logprob":NaN}')
        if verb == "big":
            return await _send(writer, 200, {"id": "x", "text": "x" * int(float(number or 1) * 2**20)})
        reply = _reply(path, request, text)
        if verb == "think":
            reply["choices"][0]["message"]["reasoning_content"] = "let me see"
        return await _send(writer, 200, reply)


def _input(request: dict[str, Any]) -> str:
    if "messages" in request:
        return str(request["messages"][-1].get("content"))
    given = request.get("prompt", request.get("input"))
    return given if isinstance(given, str) else json.dumps(given)


def _reply(path: str, request: dict[str, Any], text: str) -> dict[str, Any]:
    usage = {"prompt_tokens": len(text.split()), "completion_tokens": 2, "total_tokens": len(text.split()) + 2}
    shared = {"id": "reply", "model": request["model"], "created": 1_700_000_000, "usage": usage}
    if path.endswith("/embeddings"):
        data = [{"object": "embedding", "index": 0, "embedding": [0.25, -0.5]}]
        return {**shared, "object": "list", "data": data}
    if path.endswith("/chat/completions"):
        message = {"role": "assistant", "content": f"echo: {text}"}
        return {
            **shared,
            "object": "chat.completion",
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        }
    choice = {"index": 0, "text": f"echo: {text}", "finish_reason": "stop", "logprobs": None}
    return {**shared, "object": "text_completion", "choices": [choice]}


async def _stream(writer: asyncio.StreamWriter, path: str, request: dict[str, Any], text: str) -> bool:
    said = INSTRUCTION.match(text)
    pause = float(said[2] or 0) if said and said[1] == "slow" else 0.0
    writer.write(b"HTTP/1.1 200 X\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
    for word in ("echo: ", text):
        chunk = _reply(path, request, word)
        choice = chunk["choices"][0]
        if "message" in choice:
            chunk["object"] = "chat.completion.chunk"
            choice["delta"] = {**choice.pop("message"), "content": word}
        else:
            choice["text"] = word
        event = b"data: " + json.dumps(chunk).encode() + b"\n\n"
        writer.write(b"%x\r\n%b\r\n" % (len(event), event))
        await writer.drain()
        await asyncio.sleep(pause)
    writer.write(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")
    await writer.drain()
    return True


async def _send(
    writer: asyncio.StreamWriter, status: int, body: dict[str, Any] | bytes, headers: dict[str, str] | None = None
) -> bool:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    more = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
    head = f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {len(content)}\r\n{more}\r\n"
    writer.write(head.encode() + content)
    await writer.drain()
    return True
