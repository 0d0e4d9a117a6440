"""Which proxy leads to a server, by the usual environment variables."""

from __future__ import annotations

import base64
import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

from overnight.upstreams.address import Address

_DEFAULT_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Proxy:
    """A proxy that speaks HTTP. `authorization` is the value of Proxy-Authorization and a secret."""

    host: str
    port: int
    secure: bool = False
    authorization: str | None = field(default=None, repr=False)


def find_proxy(to: Address, environment: Mapping[str, str]) -> Proxy | None:
    """The proxy for a server, None where it is reached directly.

    `https_proxy` or `http_proxy` by the server's scheme, then `all_proxy`; lower case wins over upper case.
    Loopback addresses are always reached directly: the local engine is no business of a proxy.
    ValueError, without any secret in it, when the variable makes no sense.
    """
    name = "https_proxy" if to.secure else "http_proxy"
    url = _read(environment, name) or _read(environment, "all_proxy")
    if not url or _is_loopback(to.host) or _is_excepted(to, _read(environment, "no_proxy")):
        return None
    return _read_proxy(url)


def _read(environment: Mapping[str, str], name: str) -> str:
    lower = environment.get(name)
    return (environment.get(name.upper(), "") if lower is None else lower).strip()


def _read_proxy(url: str) -> Proxy:
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        port = parts.port
    except ValueError as error:
        raise ValueError("The proxy of the environment is not a URL.") from error
    if parts.scheme not in _DEFAULT_PORTS:
        raise ValueError(f"A proxy of the kind {parts.scheme!r} is not supported; http:// and https:// are.")
    if not parts.hostname:
        raise ValueError("The proxy of the environment names no host.")
    authorization = None
    if parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        authorization = "Basic " + base64.b64encode(pair.encode()).decode()
    return Proxy(parts.hostname, port or _DEFAULT_PORTS[parts.scheme], parts.scheme == "https", authorization)


def _is_loopback(host: str) -> bool:
    number = _as_number(host)
    return host.lower() == "localhost" or (number is not None and number.is_loopback)


def _is_excepted(to: Address, exceptions: str) -> bool:
    return any(_matches(to, entry.strip().lower()) for entry in exceptions.split(",") if entry.strip())


def _matches(to: Address, entry: str) -> bool:
    """Whether one entry of no_proxy names the server: `*`, a network, an address, or a name and all below it."""
    if entry == "*":
        return True
    number = _as_number(to.host)
    if number is not None:
        return _names_number(number, to.port, entry)
    name, _, port = entry.partition(":")
    if port and port != str(to.port):
        return False
    name = name.removeprefix("*").strip(".")
    host = to.host.lower().rstrip(".")
    return bool(name) and (host == name or host.endswith(f".{name}"))


def _names_number(number: ipaddress.IPv4Address | ipaddress.IPv6Address, port: int, entry: str) -> bool:
    entry = entry.removesuffix(f":{port}") if entry.count(":") == 1 or entry.startswith("[") else entry
    try:
        return number in ipaddress.ip_network(entry.strip("[]"), strict=False)
    except ValueError:
        return False


def _as_number(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None
