"""The mock upstream of mock_upstream.c in Python, for machines without a C compiler or epoll; same arguments."""

from __future__ import annotations

import asyncio
import json
import os
import random
import resource
import stat
import sys
import time
from typing import cast

TEXT = "the night batch answers slowly while a small engine counts stars and every token finds its place"
WORDS = TEXT.split()


class Counts:
    """What happened so far; `in_flight_seconds` is the integral of requests in flight."""

    def __init__(self) -> None:
        self.requests = self.failures = self.in_flight = self.max_in_flight = 0
        self.connections = self.max_connections = 0
        self.in_flight_seconds = 0.0
        self.started = self.counted_until = time.monotonic()

    def change_in_flight(self, change: int) -> None:
        """Count requests that came or went."""
        now = time.monotonic()
        self.in_flight_seconds += self.in_flight * (now - self.counted_until)
        self.counted_until = now
        self.in_flight += change
        self.max_in_flight = max(self.max_in_flight, self.in_flight)

    def as_json(self) -> bytes:
        """The answer of GET /stats."""
        self.change_in_flight(0)
        use = resource.getrusage(resource.RUSAGE_SELF)
        told = {key: value for key, value in vars(self).items() if key not in ("started", "counted_until")}
        told["cpu_seconds"] = use.ru_utime + use.ru_stime
        told["uptime_seconds"] = self.counted_until - self.started
        return json.dumps(told).encode()


def http_reply(status: str, body: bytes) -> bytes:
    """A whole HTTP reply."""
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def chat_reply(wanted: int, draw: random.Random) -> bytes:
    """A chat completion of about `wanted` bytes."""
    words = " ".join(draw.choices(WORDS, k=max(1, (wanted - 350) // 6)))
    message = {"role": "assistant", "content": words}
    tokens = words.count(" ") + 1
    body = {
        "id": f"chatcmpl-{draw.getrandbits(64):016x}",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": "mock",
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 200, "completion_tokens": tokens, "total_tokens": 200 + tokens},
    }
    return http_reply("200 OK", json.dumps(body).encode())


def embedding_reply(draw: random.Random) -> bytes:
    """An embedding of 384 numbers."""
    numbers = [round(draw.uniform(-1, 1), 6) for _ in range(384)]
    data = [{"object": "embedding", "index": 0, "embedding": numbers}]
    usage = {"prompt_tokens": 12, "total_tokens": 12}
    return http_reply("200 OK", json.dumps({"object": "list", "data": data, "model": "mock", "usage": usage}).encode())


class Mock:
    """The replies, the delays and the counts that all connections share."""

    def __init__(self, min_ms: int, max_ms: int, reply_bytes: int, error_rate: float, seed: int) -> None:
        self.draw = random.Random(seed)
        self.delays = (min_ms / 1000, max_ms / 1000)
        self.error_rate = error_rate
        self.counts = Counts()
        self.chats = [chat_reply(reply_bytes, self.draw) for _ in range(64)]
        self.embedding = embedding_reply(self.draw)
        choice = {"index": 0, "text": " and so the night went on", "logprobs": None, "finish_reason": "stop"}
        usage = {"prompt_tokens": 12, "completion_tokens": 6, "total_tokens": 18}
        text = {"id": "cmpl-1", "object": "text_completion", "created": 1_700_000_000, "model": "mock"}
        text |= {"choices": [choice], "usage": usage}
        self.completion = http_reply("200 OK", json.dumps(text).encode())
        told = {"message": "The mock was told to fail.", "type": "server_error", "param": None, "code": None}
        self.failure = http_reply("500 Internal Server Error", json.dumps({"error": told}).encode())

    def at_once(self, method: bytes, path: bytes) -> bytes | None:
        """The reply that needs no delay, None where the model is asked."""
        if method == b"POST" and path.startswith(b"/v1/"):
            return None
        models = {"object": "list", "data": [{"id": "mock", "object": "model", "created": 0, "owned_by": "mock"}]}
        if path == b"/stats":
            return http_reply("200 OK", self.counts.as_json())
        if path == b"/v1/models":
            return http_reply("200 OK", json.dumps(models).encode())
        if path == b"/health":
            return http_reply("200 OK", b'{"status":"ok"}')
        return http_reply("404 Not Found", b'{"error":{"message":"No such route.","code":404}}')

    def late(self, path: bytes) -> bytes:
        """The reply of the model."""
        if self.error_rate and self.draw.random() < self.error_rate:
            self.counts.failures += 1
            return self.failure
        if path == b"/v1/embeddings":
            return self.embedding
        return self.completion if path == b"/v1/completions" else self.draw.choice(self.chats)


class Connection(asyncio.Protocol):
    """One connection; a request sent ahead waits until the reply before it is out."""

    def __init__(self, mock: Mock) -> None:
        self.mock = mock
        self.held = bytearray()
        self.timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Count the connection."""
        # uvloop's transports are none of asyncio's by class.
        self.transport = cast("asyncio.Transport", transport)
        counts = self.mock.counts
        counts.connections += 1
        counts.max_connections = max(counts.max_connections, counts.connections)

    def connection_lost(self, error: Exception | None) -> None:
        """Forget the request whose client went away."""
        self.mock.counts.connections -= 1
        if self.timer is not None:
            self.timer.cancel()
            self.mock.counts.change_in_flight(-1)

    def data_received(self, data: bytes) -> None:
        """Take what came; go on once a request is whole."""
        self.held += data
        self._go_on()

    def _go_on(self) -> None:
        while self.timer is None:
            end = self.held.find(b"\r\n\r\n")
            if end < 0:
                return
            head = bytes(self.held[:end])
            whole = end + 4 + _content_length(head)
            if len(self.held) < whole:
                return
            del self.held[:whole]
            method, path = head.split(b" ", 2)[:2]
            reply = self.mock.at_once(method, path)
            if reply is None:
                self.mock.counts.change_in_flight(1)
                delay = self.mock.draw.uniform(*self.mock.delays)
                self.timer = asyncio.get_running_loop().call_later(delay, self._answer, self.mock.late(path))
            else:
                self.transport.write(reply)

    def _answer(self, reply: bytes) -> None:
        self.timer = None
        self.mock.counts.requests += 1
        self.mock.counts.change_in_flight(-1)
        self.transport.write(reply)
        self._go_on()


def _content_length(head: bytes) -> int:
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return int(value)
    return 0


async def serve(port: int, mock: Mock) -> None:
    """Serve until standard input, where it is a pipe, ends."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(mock), "127.0.0.1", port, backlog=16384)
    ended = asyncio.Event()
    if stat.S_ISFIFO(os.fstat(0).st_mode):
        loop.add_reader(0, ended.set)
    print(f"PORT {server.sockets[0].getsockname()[1]}", flush=True)
    await ended.wait()


def main() -> None:
    """Read the arguments and serve."""
    port, min_ms, max_ms, reply_bytes = map(int, sys.argv[1:5])
    error_rate = float(sys.argv[5]) if len(sys.argv) > 5 else 0.0
    seed = int(sys.argv[6]) if len(sys.argv) > 6 else 1
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    mock = Mock(min_ms, max_ms, reply_bytes, error_rate, seed)
    try:
        import uvloop
    except ImportError:
        asyncio.run(serve(port, mock))
    else:
        uvloop.run(serve(port, mock))


if __name__ == "__main__":
    main()
