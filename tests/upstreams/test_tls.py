"""Encrypted servers: only a certificate that is valid for the host is trusted."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
import trustme

from overnight.upstreams.http import Broken, BrokenKind, Pool, Reply
from tests.upstreams.conftest import Connect, Outcome, Serve
from tests.upstreams.server import CHAT, Peer, always, saying


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


def trust_for(authority: trustme.CA, *names: str) -> ssl.SSLContext:
    """A server's TLS settings with a certificate for these names."""
    trust = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(*names).configure_cert(trust)
    return trust


async def test_an_encrypted_server_is_spoken_to_over_one_kept_connection(
    serve: Serve, connect: Connect, authority: trustme.CA, ca_file: str
) -> None:
    server = await serve(always(), trust_for(authority, "localhost"))
    pool = connect(server, ca_file=ca_file)
    for _ in range(5):
        assert (await Outcome(pool).reply()).body == CHAT
    assert server.accepted == 1


async def test_the_server_learns_the_name_it_is_called_by(
    serve: Serve, connect: Connect, authority: trustme.CA, ca_file: str
) -> None:
    names: list[str | None] = []
    trust = trust_for(authority, "localhost")
    trust.sni_callback = lambda _, name, __: names.append(name)
    await Outcome(connect(await serve(always(), trust), ca_file=ca_file)).reply()
    assert names == ["localhost"]


async def test_an_address_in_the_certificate_is_accepted(
    serve: Serve, connect: Connect, authority: trustme.CA, ca_file: str
) -> None:
    server = await serve(always(), trust_for(authority, "127.0.0.1"))
    reply = await Outcome(connect(f"https://127.0.0.1:{server.port}/v1", ca_file=ca_file)).reply()
    assert reply.status == 200


async def test_large_bodies_pass_both_ways(serve: Serve, connect: Connect, authority: trustme.CA, ca_file: str) -> None:
    async def script(peer: Peer) -> None:
        await peer.answer((await peer.read()).body)

    body = bytes(range(256)) * 16 * 1024
    pool = connect(await serve(script, trust_for(authority, "localhost")), ca_file=ca_file)
    assert (await Outcome(pool, body=body).reply()).body == body


async def test_an_unknown_authority_is_refused_before_anything_is_sent(
    serve: Serve, connect: Connect, authority: trustme.CA
) -> None:
    broken = await Outcome(connect(await serve(always(), trust_for(authority, "localhost")))).broken()
    assert (broken.kind, broken.sent) == (BrokenKind.TLS, False)
    assert "certificate" in broken.message


async def test_a_certificate_for_another_host_is_refused(
    serve: Serve, connect: Connect, authority: trustme.CA, ca_file: str
) -> None:
    server = await serve(always(), trust_for(authority, "elsewhere.test"))
    assert (await Outcome(connect(server, ca_file=ca_file)).broken()).kind is BrokenKind.TLS


async def test_a_server_without_encryption_is_told(serve: Serve, connect: Connect) -> None:
    async def script(peer: Peer) -> None:
        await peer.read_some()
        await peer.say(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    server = await serve(script)
    broken = await Outcome(connect(f"https://localhost:{server.port}/v1")).broken()
    assert (broken.kind, broken.sent) == (BrokenKind.TLS, False)


async def test_an_encrypted_reply_cut_in_the_middle_is_cut(
    serve: Serve, connect: Connect, authority: trustme.CA, ca_file: str
) -> None:
    server = await serve(saying(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf"), trust_for(authority, "localhost"))
    assert (await Outcome(connect(server, ca_file=ca_file)).broken()).kind is BrokenKind.CUT


async def test_a_kept_encrypted_connection_that_was_closed_is_replaced(
    serve: Serve, connect: Connect, authority: trustme.CA, ca_file: str
) -> None:
    async def script(peer: Peer) -> None:
        await peer.read()
        await peer.answer()
        peer.hang_up()
        await peer.see_goodbye()

    server = await serve(script, trust_for(authority, "localhost"))
    pool = connect(server, ca_file=ca_file)
    outcomes: list[Reply | Broken] = [await Outcome(pool) for _ in range(5)]
    # Whether the goodbye came before the next request was written is a matter of chance, but nothing else can happen.
    assert all(isinstance(came, Reply) or came.kind is BrokenKind.CLOSED for came in outcomes)
    assert isinstance(outcomes[0], Reply)


@pytest.mark.parametrize("content", [None, b"", b"no certificate"])
async def test_an_unreadable_file_of_authorities_is_told_at_once(
    connect: Connect, tmp_path: Path, content: bytes | None
) -> None:
    path = tmp_path / "ca.pem"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ValueError, match=r"ca\.pem"):
        connect("https://localhost/v1", ca_file=str(path))


async def test_closing_the_pool_closes_encrypted_connections(
    serve: Serve, connect: Connect, authority: trustme.CA, ca_file: str
) -> None:
    pool: Pool = connect(await serve(always(), trust_for(authority, "localhost")), ca_file=ca_file)
    await Outcome(pool).reply()
    await pool.close()
    assert (await Outcome(pool).broken()).kind is BrokenKind.CANCELLED
