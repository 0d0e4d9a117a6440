"""Judges replies for the tests, with defaults that don't matter to them."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

from overnight.domain.outcome import Again, Try, decide
from overnight.upstreams.answer import read_reply
from overnight.upstreams.call import Reply

NOW = datetime(2026, 1, 1, tzinfo=UTC)
WINDOW = NOW + timedelta(hours=24)


def judge(
    body: bytes | object = b"",
    status: int = 200,
    retry_after: str | None = None,
    most: int = 10_000,
    local: bool = False,
) -> Try:
    """The outcome of a reply; a body that is not bytes is written as JSON."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    reply = Reply(status, raw, retry_after, "application/json", 0.1)
    return read_reply(reply, most_bytes=most, local_engine=local, now=NOW)


def is_tried_again(came: Try) -> bool:
    return isinstance(decide(came, 1, NOW, WINDOW, 0.0), Again)
