"""Calls that go through a proxy: whole URLs for plain servers, tunnels for encrypted ones."""

from __future__ import annotations

import asyncio
import base64
import ssl
from pathlib import Path

import pytest
import trustme

from overnight.upstreams.http import BrokenKind
from tests.upstreams.conftest import Connect, Outcome, Serve
from tests.upstreams.server import CHAT, Peer, Request, Server, saying


class Tunnels:
    """A proxy's script that opens tunnels to one server, whatever host it is asked for."""

    def __init__(self, to: Server) -> None:
        self._to = to
        self.asked: list[Request] = []

    async def __call__(self, peer: Peer) -> None:
        """Open a tunnel and pump bytes both ways until one side closes."""
        self.asked.append(await peer.read())
        await peer.say(b"HTTP/1.1 200 Connection established\r\nVia: test\r\n\r\n")
        reader, writer = await asyncio.open_connection("127.0.0.1", self._to.port)
        back = asyncio.create_task(self._pump_back(reader, peer))
        try:
            while data := await peer.read_some():
                writer.write(data)
                await writer.drain()
        finally:
            writer.close()
            back.cancel()
            await asyncio.gather(back, return_exceptions=True)

    async def _pump_back(self, reader: asyncio.StreamReader, peer: Peer) -> None:
        while data := await reader.read(65536):
            await peer.say(data)
        peer.hang_up()


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    """An authority that only these tests trust."""
    return trustme.CA()


@pytest.fixture
def ca_file(authority: trustme.CA, tmp_path: Path) -> str:
    """The authority's certificate in a file."""
    path = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(path))
    return str(path)


@pytest.fixture
def trust(authority: trustme.CA) -> ssl.SSLContext:
    """TLS settings of a server called model.test."""
    trust = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("model.test").configure_cert(trust)
    return trust


async def test_a_plain_server_is_asked_for_by_its_whole_url(serve: Serve, connect: Connect) -> None:
    seen: list[Request] = []

    async def script(peer: Peer) -> None:
        while True:
            seen.append(await peer.read())
            await peer.answer()

    proxy = await serve(script)
    settings = {"http_proxy": f"http://ann:s%40cret@127.0.0.1:{proxy.port}"}
    pool = connect("http://model.test:8000/v1", api_key="sk-1", environment=settings)
    for _ in range(2):
        assert (await Outcome(pool).reply()).body == CHAT
    assert seen[0].line == "POST http://model.test:8000/v1/chat/completions HTTP/1.1"
    assert seen[0].headers["host"] == "model.test:8000"
    secret = base64.b64encode(b"ann:s@cret").decode()
    assert seen[0].headers["proxy-authorization"] == f"basic {secret}".lower()
    assert proxy.accepted == 1


async def test_an_encrypted_server_is_reached_through_a_tunnel(
    serve: Serve, connect: Connect, trust: ssl.SSLContext, ca_file: str
) -> None:
    seen: list[Request] = []

    async def script(peer: Peer) -> None:
        while True:
            seen.append(await peer.read())
            await peer.answer()

    tunnels = Tunnels(await serve(script, trust))
    proxy = await serve(tunnels)
    settings = {"HTTPS_PROXY": f"http://ann:pw@127.0.0.1:{proxy.port}"}
    pool = connect("https://model.test/v1", api_key="sk-1", ca_file=ca_file, environment=settings)
    for _ in range(3):
        assert (await Outcome(pool, body=b"x" * 100_000).reply()).body == CHAT
    assert [request.line for request in tunnels.asked] == ["CONNECT model.test:443 HTTP/1.1"]
    assert tunnels.asked[0].headers["host"] == "model.test:443"
    assert tunnels.asked[0].headers["proxy-authorization"].startswith("basic ")
    assert "authorization" not in tunnels.asked[0].headers
    assert seen[0].line == "POST /v1/chat/completions HTTP/1.1"
    assert "proxy-authorization" not in seen[0].headers


async def test_a_tunnel_does_not_loosen_the_check_of_the_certificate(
    serve: Serve, connect: Connect, trust: ssl.SSLContext, ca_file: str
) -> None:
    proxy = await serve(Tunnels(await serve(saying(b""), trust)))
    settings = {"https_proxy": f"http://127.0.0.1:{proxy.port}"}
    broken = await Outcome(connect("https://other.test/v1", ca_file=ca_file, environment=settings)).broken()
    assert (broken.kind, broken.sent) == (BrokenKind.TLS, False)


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 2\r\n\r\nno", "not valid HTTP"),
        (b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n", "407"),
        (b"HTTP/1.0 502 Bad Gateway\r\n\r\n", "502"),
        (b"garbage\r\n\r\n", "not valid HTTP"),
        (b"HTTP/1.1 200 OK\r\n\r\nearly bytes", "not valid HTTP"),
        (b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 5_000, "not valid HTTP"),
        (b"HTTP/1.1 200 OK\r\n", "closed the connection"),
        (b"", "closed the connection"),
    ],
)
async def test_a_proxy_that_opens_no_tunnel_is_an_unreachable_server(
    serve: Serve, connect: Connect, said: bytes, told: str
) -> None:
    proxy = await serve(saying(said))
    settings = {"https_proxy": f"http://ann:hidden@127.0.0.1:{proxy.port}"}
    broken = await Outcome(connect("https://model.test/v1", environment=settings)).broken()
    assert (broken.kind, broken.sent) == (BrokenKind.REFUSED, False)
    assert told in broken.message
    assert "hidden" not in broken.message


async def test_a_server_on_loopback_is_reached_without_the_proxy(serve: Serve, connect: Connect) -> None:
    server = await serve(saying(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"))
    pool = connect(server, environment={"http_proxy": "http://proxy.invalid:3128"})
    assert (await Outcome(pool).reply()).status == 200
