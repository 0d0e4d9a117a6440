"""How a connection to a server is opened: addresses, proxies, encryption."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from collections.abc import Callable
from time import monotonic

from overnight.upstreams.address import Address
from overnight.upstreams.call import BrokenKind
from overnight.upstreams.connection import Connection
from overnight.upstreams.proxy import Proxy
from overnight.upstreams.tunnel import NoTunnelError, Tunnel

# Long enough that ten thousand connections ask the resolver once, short enough to follow a server that moves.
_ADDRESS_SECONDS = 30.0
_NO_SOCKET = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL})


class CannotOpenError(Exception):
    """No connection could be opened."""

    def __init__(self, kind: BrokenKind, message: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message


class Opener:
    """Opens connections to one server, through its proxy where there is one."""

    def __init__(self, address: Address, proxy: Proxy | None, ca_file: str | None, timeout: float) -> None:
        """`timeout` is in seconds, for one connection from resolving names to the end of the TLS handshake.

        ValueError when `ca_file` cannot be read.
        """
        self._address = address
        self._proxy = proxy
        self._timeout = timeout
        self._trust = make_trust(ca_file) if address.secure else None
        self._proxy_trust = make_trust(None) if proxy is not None and proxy.secure else None
        self._resolving = asyncio.Lock()
        self._numbers: list[str] = []
        self._numbers_until = 0.0

    async def open(self, make: Callable[[], Connection]) -> Connection:
        """A connection that is ready for its first call; CannotOpenError says why there is none."""
        try:
            async with asyncio.timeout(self._timeout):
                numbers = await self._resolve()
                return await self._try_each(numbers, make)
        except TimeoutError as error:
            raise CannotOpenError(
                BrokenKind.CONNECT_TIMEOUT,
                f"No connection to {self._named()} could be opened within {self._timeout:g} s.",
            ) from error
        except NoTunnelError as error:
            raise CannotOpenError(BrokenKind.REFUSED, str(error)) from error
        except OSError as error:
            raise self._explain(error) from error

    async def _resolve(self) -> list[str]:
        """The numeric addresses of the next hop, the one that worked last in front."""
        if monotonic() < self._numbers_until:
            return list(self._numbers)
        async with self._resolving:
            if monotonic() >= self._numbers_until:
                found = await asyncio.get_running_loop().getaddrinfo(
                    *self._next_hop(), type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP
                )
                self._numbers = list(dict.fromkeys(str(entry[4][0]) for entry in found))
                self._numbers_until = monotonic() + _ADDRESS_SECONDS
            return list(self._numbers)

    async def _try_each(self, numbers: list[str], make: Callable[[], Connection]) -> Connection:
        ends = monotonic() + self._timeout
        for tried, number in enumerate(numbers[:-1]):
            share = (ends - monotonic()) / (len(numbers) - tried)
            try:
                async with asyncio.timeout(share):
                    connection = await self._connect(number, make)
            except ssl.SSLError:
                raise
            except OSError:
                continue
            self._prefer(number)
            return connection
        return await self._connect(numbers[-1], make)

    def _prefer(self, number: str) -> None:
        if self._numbers and self._numbers[0] != number and number in self._numbers:
            self._numbers.remove(number)
            self._numbers.insert(0, number)

    async def _connect(self, number: str, make: Callable[[], Connection]) -> Connection:
        loop = asyncio.get_running_loop()
        if self._proxy is not None and self._trust is not None:
            return await self._connect_through(self._proxy, number, make)
        hop, port = self._next_hop()
        trust = self._trust if self._proxy is None else self._proxy_trust
        _, connection = await loop.create_connection(
            make,
            number,
            port,
            ssl=trust,
            server_hostname=_server_name(hop) if trust else None,
            ssl_handshake_timeout=self._timeout if trust else None,
        )
        return connection

    async def _connect_through(self, proxy: Proxy, number: str, make: Callable[[], Connection]) -> Connection:
        """Ask the proxy for a tunnel, then speak TLS with the server inside it (RFC 9110, section 9.3.6)."""
        loop = asyncio.get_running_loop()
        transport, tunnel = await loop.create_connection(
            lambda: Tunnel(self._address, proxy.authorization),
            number,
            proxy.port,
            ssl=self._proxy_trust,
            server_hostname=_server_name(proxy.host) if self._proxy_trust else None,
        )
        try:
            await tunnel.opened
            assert self._trust is not None
            connection = make()
            inner = await loop.start_tls(
                transport,
                connection,
                self._trust,
                server_hostname=_server_name(self._address.host),
                ssl_handshake_timeout=self._timeout,
            )
        except BaseException:
            transport.abort()
            raise
        if inner is None:
            raise ConnectionAbortedError
        connection.connection_made(inner)
        return connection

    def _next_hop(self) -> tuple[str, int]:
        hop = self._proxy or self._address
        return hop.host, hop.port

    def _named(self) -> str:
        server = f"{self._address.host}:{self._address.port}"
        return server if self._proxy is None else f"{server} through the proxy {self._proxy.host}:{self._proxy.port}"

    def _explain(self, error: OSError) -> CannotOpenError:
        if isinstance(error, ssl.SSLCertVerificationError):
            told = f"The certificate of {self._named()} is not trusted: {error.verify_message}."
            return CannotOpenError(BrokenKind.TLS, told)
        if isinstance(error, ssl.SSLError):
            told = f"No encryption could be agreed on with {self._named()}: {error.reason or 'it broke off'}."
            return CannotOpenError(BrokenKind.TLS, told)
        if isinstance(error, socket.gaierror):
            return CannotOpenError(BrokenKind.NO_ADDRESS, f"The name {self._next_hop()[0]!r} has no address.")
        if error.errno in _NO_SOCKET:
            told = f"This machine can open no further connection: {error.strerror}."
            return CannotOpenError(BrokenKind.NO_SOCKET, told)
        reason = error.strerror or "the connection was refused or broken"
        return CannotOpenError(BrokenKind.REFUSED, f"{self._named()} cannot be reached: {reason}.")


def make_trust(ca_file: str | None) -> ssl.SSLContext:
    """TLS settings that verify the server. ValueError when `ca_file` holds no readable certificates."""
    try:
        trust = ssl.create_default_context(cafile=ca_file)
    except (OSError, ValueError) as error:
        raise ValueError(f"The file of trusted certificates {ca_file!r} cannot be read: {error}.") from error
    trust.set_alpn_protocols(["http/1.1"])
    return trust


def _server_name(host: str) -> str:
    return host.rstrip(".")
