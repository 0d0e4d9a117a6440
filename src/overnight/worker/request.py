"""A request of a leased block, and where it stands.

It is *untaken* until its turn comes, then *in flight*: written down, in the reserve, running. From there it is
answered, or waits for another try and is untaken again when that is due.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from overnight.domain.fairness import estimate
from overnight.domain.lanes import Group

if TYPE_CHECKING:
    from overnight.worker.flow import Source


class Request:
    """One request of a leased block."""

    __slots__ = (
        "alone", "block", "custom_id", "expected", "group", "is_read_again", "lane", "line", "losses", "prefix", "sent",
        "size", "started", "text", "uncounted",
    )  # fmt: skip

    def __init__(self, block: Block, line: int, text: bytes) -> None:
        self.block = block
        self.line = line
        self.text = text
        """Empty while it waits and gave its text back."""
        self.size = len(text)
        self.is_read_again = False
        """Its text was read again, and its turn has not come since."""
        self.sent = 0
        """Attempts so far; a request in flight counts the one that it is in."""
        self.uncounted = 0
        """Attempts that were no tries: its server went away, or the model was queued."""
        self.losses = 0
        """Attempts that ended with the death of a worker or of a local engine."""
        self.group = 0
        """The number under which its attempt was written down."""
        self.alone = False
        """It runs while nothing else does, since it may be what its servers died of."""
        self.started = 0.0
        self.custom_id = ""
        self.prefix: Group = None
        """Its group, where the order depends on that, and the lane that it is on."""
        self.lane = 0
        self.expected = 0
        """Tokens of output for which its owner was charged when it was chosen."""

    @property
    def charged(self) -> int:
        """What its owner was charged when it was chosen, in weighted tokens."""
        return estimate(self.size, self.expected)

    @property
    def tries(self) -> int:
        """The tries that count, the one in flight included."""
        return self.sent - self.uncounted


class Block:
    """A leased block. `pending` counts its requests that are not durably answered and not dropped."""

    __slots__ = ("next", "pending", "requests", "seq", "source", "whole")

    def __init__(self, source: Source, seq: int) -> None:
        self.source = source
        self.seq = seq
        self.requests: list[Request] = []
        self.next = 0
        self.pending = 0
        self.whole = True
        """Whether all its requests end here; else it goes back when the pending ones have ended."""
