"""What one try at a request came to, and what follows from it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

import msgspec

from overnight.domain import backoff
from overnight.domain.context import OF_BATCH, has_several_prompts, tell_too_long

MOST_TRIES_WITHOUT_WINDOW = 2_000
MOST_TRIES_UNREADABLE = 3


# Structs of msgspec where one is made for each request: a frozen dataclass of this size takes a microsecond more.
class Usage(msgspec.Struct, frozen=True, gc=False):
    """Tokens of one try, as the upstream reported them. `cached` is part of `input`, `reasoning` of `output`."""

    input: int = 0
    cached: int = 0
    output: int = 0
    reasoning: int = 0


NO_USAGE = Usage()


class Try(msgspec.Struct, frozen=True, gc=False):
    """What one try at a request came to.

    A success has `code` None and its `body`. A failure has a `code` of the public table, a sentence,
    and the HTTP `status` behind it when there was one.
    """

    status: int | None
    body: bytes | None = None
    """Success: the reply as one line of JSON, safe to be split by any client."""
    code: str | None = None
    message: str = ""
    error_body: bytes | None = None
    """Failure: what the upstream itself said, as one JSON value of at most 4 KiB."""
    usage: Usage = NO_USAGE
    retry_after: timedelta | None = None
    may_pass: bool = False
    """Another try may go better: 408, 425, 429, 5xx, a connection refused or broken."""
    blames_route: bool = False
    """Counts towards opening the circuit of the route."""
    queued: bool = False
    """The model waits for a machine (503 `model_queued`): no attempt is used up."""
    lost_server: bool = False
    """The server went away while it worked on this; with a local engine no attempt is used up."""
    gone: bool = False
    """No connection was taken, or it broke: the server itself may be gone."""
    unreadable: bool = False
    """The model ran, and its server could not read what it wrote: a greedy one writes much the same the next time."""


def without_room(came: Try | None) -> Try:
    """What a try came to whose response its batch has no room for; None: the request is not even sent."""
    says = "The batch stores as many bytes of responses as one batch may; this request "
    says += "was not run." if came is None else "ran, and its response was dropped."
    code = "result_too_large"
    if came is None:
        return Try(status=None, code=code, message=says)
    return Try(status=came.status, code=code, message=says, usage=came.usage)


def within_context(came: Try, most: int | None, request: bytes) -> Try:
    """What a try came to in a batch with a `max_context_length` of so many tokens; None: it has none.

    The server has counted the prompt, so both numbers are exact; what it has cost stays. Of several prompts in one
    stored request it tells the sum only, which says nothing about any of them.
    """
    if most is None or came.code is not None or came.usage.input <= most or has_several_prompts(request):
        return came
    says = tell_too_long(came.usage.input, most, OF_BATCH)
    return Try(status=400, code="context_length_exceeded", message=says, usage=came.usage)


@dataclass(frozen=True, slots=True)
class Done:
    """The request is answered, well or with an error that no other try would change."""


@dataclass(frozen=True, slots=True)
class Again:
    """Try once more, not before `at`."""

    at: datetime


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Answer with the error of this try: no further one may start."""

    reason: str


def decide(came: Try, tries: int, now: datetime, window_ends: datetime | None, jitter: float) -> Done | Again | GiveUp:
    """Say what follows from a try.

    `tries` counts the tries made so far, this one included; `jitter` is uniform in [0, 1).
    A batch without a window (`window_ends` None) ends its retries by their number.
    """
    if came.code is None or not came.may_pass:
        return Done()
    if came.unreadable and tries >= MOST_TRIES_UNREADABLE:
        return GiveUp(f"{tries} times the server could not read what its model wrote")
    at = now + backoff.wait(tries, came.retry_after, jitter)
    if window_ends is not None and at >= window_ends:
        return GiveUp("the next try would start after the batch's window closes")
    if window_ends is None and tries >= MOST_TRIES_WITHOUT_WINDOW:
        return GiveUp(f"{MOST_TRIES_WITHOUT_WINDOW:,} tries were made")
    return Again(at)
