"""Opening connections where not all goes well on this side."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator

import pytest

from overnight.upstreams.http import BrokenKind
from overnight.upstreams.opening import Opener
from tests.upstreams.conftest import Connect, Outcome, Serve
from tests.upstreams.server import CHAT, Peer, always


@pytest.fixture
def no_descriptors() -> Iterator[None]:
    """This process can open no further file or socket."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # The lowest free descriptor is the one that would be given out next.
    lowest = os.open(os.devnull, os.O_RDONLY)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_the_next_address_is_tried_where_one_refuses(
    serve: Serve, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def resolve(_: Opener) -> list[str]:
        return ["127.0.0.2", "127.0.0.3", "127.0.0.1"]

    monkeypatch.setattr(Opener, "_resolve", resolve)
    assert (await Outcome(connect(await serve(always()))).reply()).body == CHAT


async def test_a_machine_without_descriptors_is_not_the_servers_fault(
    connect: Connect, request: pytest.FixtureRequest
) -> None:
    pool = connect("http://127.0.0.1:9/v1")
    request.getfixturevalue("no_descriptors")
    broken = await Outcome(pool).broken()
    assert (broken.kind, broken.sent) == (BrokenKind.NO_SOCKET, False)


async def test_calls_wait_for_the_connections_there_are_when_none_can_be_added(
    serve: Serve, connect: Connect, request: pytest.FixtureRequest
) -> None:
    async def script(peer: Peer) -> None:
        while True:
            await peer.read()
            await peer.answer()

    server = await serve(script)
    pool = connect(server)
    await Outcome(pool).reply()
    request.getfixturevalue("no_descriptors")
    calls = [Outcome(pool) for _ in range(5)]
    for call in calls:
        assert (await call.reply()).body == CHAT
    assert server.accepted == 1
