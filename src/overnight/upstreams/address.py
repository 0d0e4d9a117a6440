"""Where an upstream server lives: the parts of its base URL."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from urllib.parse import urlsplit

_DEFAULT_PORTS = {"http": 80, "https": 443}
_NETLOC = re.compile(
    r"(\[(?P<six>[0-9A-Fa-f:.]+)]|(?P<name>[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_])?\.?))(:[0-9]+)?\Z"
)
_VISIBLE = re.compile(r"[!-~]*\Z")


@dataclass(frozen=True, slots=True)
class Address:
    """A base URL taken apart. `host` has no brackets; `prefix` is "" or a path without a slash at its end."""

    secure: bool
    host: str
    port: int
    prefix: str

    @property
    def authority(self) -> str:
        """The value of the Host header: the port is left out where the scheme implies it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        implied = _DEFAULT_PORTS["https" if self.secure else "http"]
        return host if self.port == implied else f"{host}:{self.port}"


def read_address(url: str) -> Address:
    """Take a base URL apart. ValueError, without any secret in it, when it is not one that can be called."""
    if not _VISIBLE.match(url):
        raise ValueError("The base URL may hold visible ASCII characters only.")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ValueError("The base URL is not a URL: its host or port cannot be read.") from error
    if "@" in parts.netloc:
        raise ValueError("The base URL names a user or password. Give the secret as the route's API key instead.")
    if parts.scheme not in _DEFAULT_PORTS:
        raise ValueError("The base URL must start with http:// or https://.")
    if "?" in url or "#" in url:
        raise ValueError("The base URL may not have a query or a fragment.")
    if port == 0 or parts.netloc.endswith(":"):
        raise ValueError("The base URL's port must be a number from 1 to 65535, or be left out.")
    return Address(
        secure=parts.scheme == "https",
        host=_read_host(parts.netloc),
        port=port or _DEFAULT_PORTS[parts.scheme],
        prefix=parts.path.rstrip("/"),
    )


def _read_host(netloc: str) -> str:
    found = _NETLOC.match(netloc)
    if found is None:
        raise ValueError(f"The base URL's host {netloc!r} is not a host name or an address.")
    if found["six"] is None:
        return found["name"]
    try:
        return str(ipaddress.IPv6Address(found["six"]))
    except ValueError as error:
        raise ValueError(f"The base URL's host {netloc!r} is not an IPv6 address.") from error
