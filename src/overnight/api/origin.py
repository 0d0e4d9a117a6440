"""Keeps web pages out: whoever visits one must not thereby hand over batches or have results read.

Without keys every program of this machine may call, and a browser is such a program for every page it shows.
A page of elsewhere gets here in two ways: by its own name pointing at this address (DNS rebinding), seen by the
`Host` header, or by sending a form or a fetch across sites, seen by `Origin` and `Sec-Fetch-Site` (W3C Fetch
Metadata). Browsers do not let a page change any of the three.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from functools import lru_cache
from urllib.parse import urlsplit

from overnight.domain.errors import Forbidden

_READS = frozenset({"GET", "HEAD", "OPTIONS"})
"""Methods that change nothing; what they answer, a browser keeps from pages of other sites."""


def check(method: str, headers: Iterable[tuple[bytes, bytes]], hosts: frozenset[str]) -> None:
    """Raise Forbidden where the call was made by a web page of another site.

    `hosts` are the names, in lower case and without port, by which callers may address this process beside loopback.
    """
    for name, value in headers:
        if name == b"host":
            if not is_ours(value, hosts):
                raise Forbidden(
                    "The Host header names neither a loopback address nor a host name that this server was told of."
                )
        elif method in _READS:
            continue
        elif (name == b"origin" and not _is_origin_ours(value, hosts)) or (
            name == b"sec-fetch-site" and value == b"cross-site"
        ):
            raise Forbidden("A web page of another site may not make this call.")


@lru_cache(256)
def is_ours(host: bytes, hosts: frozenset[str]) -> bool:
    """Whether a `Host` header, port or not, is a loopback address or one of `hosts`."""
    try:
        name = (urlsplit(b"//" + host).hostname or b"").decode("ascii")
    except ValueError:
        return False
    if name in hosts or name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _is_origin_ours(origin: bytes, hosts: frozenset[str]) -> bool:
    scheme, separator, host = origin.partition(b"://")
    return bool(separator) and scheme in (b"http", b"https") and is_ours(host, hosts)
