"""What is asked of an upstream server, and what comes back: the words of the pool's interface."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING

import msgspec

from overnight.upstreams.address import read_address

if TYPE_CHECKING:
    from overnight.upstreams.connection import Connection

_KEY = re.compile(r"[!-~]+\Z")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a route leads.

    `base_url` is for example `http://127.0.0.1:8000/v1`; the path of a call is appended to it. `api_key` is sent as
    `Authorization: Bearer` and never shown. `ca_file` names a PEM file of the only authorities to be trusted;
    without it the system's are. ValueError, without the key in it, when it cannot be called.
    """

    base_url: str
    api_key: str | None = field(default=None, repr=False)
    ca_file: str | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be called."""
        read_address(self.base_url)
        if self.api_key is not None and not _KEY.match(self.api_key):
            raise ValueError("The API key of a route may hold visible ASCII characters only, and at least one.")


class BrokenKind(Enum):
    """How a call came to nothing."""

    REFUSED = auto()
    """The server, or the proxy before it, could not be reached."""
    CONNECT_TIMEOUT = auto()
    """Opening a connection took too long."""
    NO_ADDRESS = auto()
    """The name of the server or of its proxy has no address."""
    NO_SOCKET = auto()
    """This machine has no file descriptor or port left to open a connection with."""
    TLS = auto()
    """The server's certificate is not trusted, or no encryption could be agreed on."""
    CLOSED = auto()
    """The connection ended before the first byte of a reply."""
    CUT = auto()
    """The connection ended in the middle of a reply."""
    GARBAGE = auto()
    """What came is not HTTP, or in an encoding nobody asked for."""
    TOO_LARGE = auto()
    """The reply is larger than the pool allows."""
    TOO_LONG = auto()
    """The prompt was counted first and has more tokens than it may have: the request itself was not sent."""
    TIMEOUT = auto()
    """The call's own time ran out."""
    CANCELLED = auto()
    """The caller gave up the call, or the pool was closed."""


class Reply(msgspec.Struct, frozen=True, gc=False):
    """A whole reply of a server. `seconds` is the time since the request was written."""

    status: int
    body: bytes
    retry_after: str | None
    content_type: str | None
    seconds: float


@dataclass(frozen=True, slots=True)
class Broken:
    """A call without a whole reply. `sent` is whether any byte of the request may have reached the server."""

    kind: BrokenKind
    message: str
    sent: bool


class Call:
    """One request to be sent, once.

    `path` is appended to the endpoint's base URL; `timeout` is in seconds from `Pool.send` to the end of the reply;
    `what` is the caller's own; `headers` come after the pool's. `on_end` is called exactly once and must not raise.
    The last five attributes are kept by the pool, which forgets `body` once it was written.
    """

    __slots__ = (
        "began",
        "body",
        "connection",
        "deadline",
        "ended",
        "head",
        "headers",
        "method",
        "on_end",
        "path",
        "timeout",
        "what",
    )

    def __init__(
        self,
        path: str,
        body: bytes | memoryview,
        timeout: float,
        what: object,
        on_end: Callable[[Call, Reply | Broken], None],
        method: str = "POST",
        headers: tuple[tuple[str, str], ...] = (),
    ) -> None:
        self.path = path
        self.body: bytes | memoryview = body
        self.timeout = timeout
        self.what = what
        self.on_end = on_end
        self.method = method
        self.headers = headers
        self.head = b""
        self.began = 0.0
        self.deadline = 0.0
        self.connection: Connection | None = None
        self.ended = False
