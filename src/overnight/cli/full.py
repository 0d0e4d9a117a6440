"""Says that a server is full, and when it is tried again, whatever else a command logs."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from overnight.cli import output
from overnight.client.errors import TooManyRequests


class _Said(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        """Say what the client notes of a refusal for want of room; of a server that is away others tell."""
        if isinstance(record.args, tuple) and record.args and isinstance(record.args[0], TooManyRequests):
            output.say(record.getMessage())


@contextmanager
def told_when_full() -> Iterator[None]:
    """Have what the clients wait for at a full server said while the block runs."""
    log, handler = logging.getLogger("overnight.client"), _Said()
    before = log.level, log.propagate
    log.addHandler(handler)
    log.setLevel(logging.WARNING)
    log.propagate = False
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(before[0])
        log.propagate = before[1]
