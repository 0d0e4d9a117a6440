"""Replies in an encoding that nobody asked for."""

from __future__ import annotations

import gzip
import zlib

import pytest

from overnight.upstreams.http import BrokenKind
from tests.upstreams.conftest import Connect, Outcome, Serve
from tests.upstreams.server import CHAT, always


@pytest.mark.parametrize(
    ("name", "packed"),
    [
        ("gzip", gzip.compress(CHAT)),
        ("X-GZIP", gzip.compress(CHAT)),
        ("deflate", zlib.compress(CHAT)),
        ("deflate", zlib.compress(CHAT, wbits=-15)),
        ("identity", CHAT),
    ],
    ids=["gzip", "x-gzip", "deflate", "bare deflate", "identity"],
)
async def test_a_packed_body_nobody_asked_for_is_unpacked(
    serve: Serve, connect: Connect, name: str, packed: bytes
) -> None:
    server = await serve(always(packed, headers=f"Content-Encoding: {name}\r\n"))
    assert (await Outcome(connect(server)).reply()).body == CHAT


@pytest.mark.parametrize(
    ("name", "packed"),
    [
        ("gzip", gzip.compress(CHAT)[:-9]),
        ("gzip", b"no gzip"),
        ("gzip", gzip.compress(CHAT) + b"more"),
        ("deflate", b"\xff\xff\xff"),
        ("br", b"\x0b"),
        ("gzip, gzip", gzip.compress(gzip.compress(CHAT))),
    ],
    ids=["cut", "no gzip", "followed", "no deflate", "unknown", "twice"],
)
async def test_a_body_that_cannot_be_unpacked_is_garbage(
    serve: Serve, connect: Connect, name: str, packed: bytes
) -> None:
    server = await serve(always(packed, headers=f"Content-Encoding: {name}\r\n"))
    assert (await Outcome(connect(server)).broken()).kind is BrokenKind.GARBAGE
