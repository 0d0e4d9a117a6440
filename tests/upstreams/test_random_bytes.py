"""Whatever bytes a server sends, a call ends once and nothing is raised."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from overnight.domain.outcome import Try
from overnight.upstreams.answer import read_reply
from overnight.upstreams.call import Broken, Call, Reply
from overnight.upstreams.connection import Connection
from tests.upstreams.conftest import Connect, Outcome, Serve
from tests.upstreams.server import Peer

NOW = datetime(2026, 1, 1, tzinfo=UTC)

pieces = st.sampled_from(
    [
        b"HTTP/1.1 200 OK\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n",
        b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n",
        b"HTTP/1.1 204 No Content\r\n",
        b"HTTP/1.1 503 Busy\r\n",
        b"HTTP/1.0 200 OK\r\n",
        b"Content-Length: 2\r\n",
        b"Content-Length: 70000\r\n",
        b"Content-Encoding: gzip\r\n",
        b"Transfer-Encoding: chunked\r\n",
        b"Connection: close\r\n",
        b"Retry-After: 5\r\n",
        b"Keep-Alive: timeout=3\r\n",
        b"\r\n",
        b"{}",
        b"2\r\n{}\r\n",
        b"0\r\n\r\n",
        b"ffffffffffffffff\r\n",
    ]
)
streams = st.lists(pieces | st.binary(max_size=40), max_size=20)


class Wire:
    """A transport without a socket."""

    def __init__(self) -> None:
        self.closed = False

    def write(self, data: bytes) -> None:
        """Send nowhere."""

    def abort(self) -> None:
        """Close."""
        self.closed = True

    def is_closing(self) -> bool:
        """Whether it was closed."""
        return self.closed

    def get_write_buffer_size(self) -> int:
        """Nothing is ever held back."""
        return 0

    def get_extra_info(self, name: str) -> Any:
        """The socket, which is none."""
        return self

    def setsockopt(self, *option: int) -> None:
        """No option matters."""

    def fileno(self) -> int:
        """Standard input, which is not asked anything here."""
        return 0


class Owner:
    """The pool's side of a connection: counts what it is told."""

    def __init__(self) -> None:
        self.kept = 0
        self.lost = 0

    def keep(self, connection: Connection) -> None:
        """Free for another call."""
        self.kept += 1

    def lose(self, connection: Connection) -> None:
        """Gone."""
        self.lost += 1

    def end_soon(self, call: Call, broken: Broken) -> None:
        """Broken; there is no loop here to wait for."""
        call.on_end(call, broken)


def play(parts: list[bytes], goodbye: Callable[[Connection], None]) -> tuple[list[Reply | Broken], Owner]:
    """Feed a connection the parts, as a loop would: nothing more once the transport is closed."""
    outcomes: list[Reply | Broken] = []
    owner, wire = Owner(), Wire()
    connection = Connection(owner, lambda: 65_536, 4.0)
    connection.connection_made(cast("asyncio.Transport", wire))
    connection.start(Call("/x", b"", 1.0, None, lambda _, came: outcomes.append(came)), b"")
    for part in parts:
        if not wire.closed:
            connection.data_received(part)
    if not wire.closed:
        goodbye(connection)
    connection.connection_lost(None)
    return outcomes, owner


@given(streams, st.sampled_from([lambda c: c.eof_received(), lambda c: c.connection_lost(OSError()), lambda c: None]))
def test_a_call_ends_exactly_once(parts: list[bytes], goodbye: Callable[[Connection], None]) -> None:
    outcomes, owner = play(parts, goodbye)
    assert len(outcomes) == 1
    assert owner.kept <= 1
    assert owner.lost >= 1


@given(streams, st.integers(0, 400))
def test_where_the_network_cuts_makes_no_difference(parts: list[bytes], cut: int) -> None:
    whole = b"".join(parts)
    outcome = [play(split, lambda c: c.eof_received())[0][0] for split in ([whole], [whole[:cut], whole[cut:]])]
    kinds = [came.kind if isinstance(came, Broken) else (came.status, came.body) for came in outcome]
    if b"" not in (whole[:cut], whole[cut:]):
        assert kinds[0] == kinds[1]


names = "error message code type status detail object usage prompt_tokens n_ctx n_prompt_tokens choices"
json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(names.split()) | st.text(max_size=5), inner, max_size=5)
    ),
    max_leaves=12,
)


def judge(status: int, body: bytes, retry_after: str | None) -> Try:
    return read_reply(Reply(status, body, retry_after, None, 0.1), most_bytes=10_000, now=NOW)


def assert_makes_sense(came: Try) -> None:
    """What must hold of any outcome."""
    assert (came.body is None) is (came.code is not None)
    if came.body is not None:
        assert len(came.body.decode().splitlines()) == 1
    if came.error_body is not None:
        assert len(came.error_body) <= 4096
        assert len(came.error_body.decode().splitlines()) == 1
    assert came.retry_after is None or came.retry_after.total_seconds() >= 0


@given(st.integers(100, 999), st.binary(max_size=200), st.none() | st.text(max_size=30))
def test_no_bytes_can_break_the_judge(status: int, body: bytes, retry_after: str | None) -> None:
    assert_makes_sense(judge(status, body, retry_after))


@given(st.sampled_from([200, 400, 429, 500, 503]), json_values)
def test_no_json_can_break_the_judge(status: int, value: object) -> None:
    assert_makes_sense(judge(status, json.dumps(value).encode(), None))
    assert_makes_sense(judge(status, json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass"), None))


async def test_random_bytes_over_a_socket_end_each_call_once(serve: Serve, connect: Connect) -> None:
    draw = random.Random(7)

    async def script(peer: Peer) -> None:
        await peer.read()
        await peer.say(draw.choice((b"", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\n\r\n")))
        for _ in range(draw.randrange(4)):
            await peer.say(draw.randbytes(draw.randrange(3_000)))

    pool = connect(await serve(script))
    calls = [Outcome(pool) for _ in range(200)]
    for call in calls:
        assert_makes_sense(read_reply(await call, most_bytes=10_000, now=NOW))
    assert {call.times for call in calls} == {1}
