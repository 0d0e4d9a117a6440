"""The environment's proxies: which servers they lead to."""

from __future__ import annotations

import pytest

from overnight.upstreams.address import read_address
from overnight.upstreams.proxy import Proxy, find_proxy

P = "http://proxy:3128"


def proxy_for(url: str, **environment: str) -> Proxy | None:
    return find_proxy(read_address(url), environment)


@pytest.mark.parametrize(
    ("url", "environment", "host"),
    [
        ("http://model/v1", {"http_proxy": "http://a"}, "a"),
        ("http://model/v1", {"HTTP_PROXY": "http://a"}, "a"),
        ("http://model/v1", {"http_proxy": "http://a", "HTTP_PROXY": "http://b"}, "a"),
        ("http://model/v1", {"http_proxy": "", "HTTP_PROXY": "http://b"}, None),
        ("http://model/v1", {"https_proxy": "http://a"}, None),
        ("https://model/v1", {"https_proxy": "http://a", "http_proxy": "http://b"}, "a"),
        ("https://model/v1", {"http_proxy": "http://b"}, None),
        ("https://model/v1", {"ALL_PROXY": "http://c"}, "c"),
        ("http://model/v1", {"all_proxy": "http://c", "http_proxy": "http://a"}, "a"),
        ("http://model/v1", {}, None),
    ],
)
def test_the_scheme_chooses_the_variable(url: str, environment: dict[str, str], host: str | None) -> None:
    proxy = proxy_for(url, **environment)
    assert (proxy and proxy.host) == host


@pytest.mark.parametrize(
    ("url", "exceptions", "direct"),
    [
        ("http://model.example.com/v1", "example.com", True),
        ("http://model.example.com/v1", ".example.com", True),
        ("http://model.example.com/v1", "*.example.com", True),
        ("http://example.com/v1", "example.com", True),
        ("http://badexample.com/v1", "example.com", False),
        ("http://EXAMPLE.com./v1", "other, Example.COM ,x", True),
        ("http://model/v1", "*", True),
        ("http://model/v1", "", False),
        ("http://model/v1", " , ", False),
        ("http://model:8000/v1", "model:8000", True),
        ("http://model:8001/v1", "model:8000", False),
        ("http://10.1.2.3/v1", "10.0.0.0/8", True),
        ("http://11.1.2.3/v1", "10.0.0.0/8", False),
        ("http://10.1.2.3:81/v1", "10.1.2.3", True),
        ("http://10.1.2.3:81/v1", "10.1.2.3:81", True),
        ("http://10.1.2.3:81/v1", "10.1.2.3:82", False),
        ("http://[2001:db8::1]/v1", "2001:db8::/32", True),
        ("http://[2001:db8::1]/v1", "[2001:db8::1]", True),
        ("http://[2001:db8::1]:81/v1", "[2001:db8::1]:81", True),
        ("http://[2001:db8::1]/v1", "10.0.0.0/8,example.com", False),
        ("http://10.1.2.3/v1", "nonsense/99,:,[", False),
    ],
)
def test_no_proxy_names_the_exceptions(url: str, exceptions: str, direct: bool) -> None:
    assert (proxy_for(url, http_proxy=P, no_proxy=exceptions) is None) is direct
    assert (proxy_for(url, HTTP_PROXY=P, NO_PROXY=exceptions) is None) is direct


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST", "127.0.0.1", "127.8.9.1", "[::1]"])
def test_loopback_is_always_reached_directly(host: str) -> None:
    assert proxy_for(f"http://{host}:8000/v1", all_proxy=P) is None


@pytest.mark.parametrize(
    ("value", "host", "port", "secure"),
    [
        ("http://proxy", "proxy", 80, False),
        ("proxy:3128", "proxy", 3128, False),
        ("https://proxy", "proxy", 443, True),
        ("http://[::1]:3128/", "::1", 3128, False),
    ],
)
def test_a_proxys_address_is_read(value: str, host: str, port: int, secure: bool) -> None:
    proxy = proxy_for("http://model/v1", http_proxy=value)
    assert proxy is not None
    assert (proxy.host, proxy.port, proxy.secure, proxy.authorization) == (host, port, secure, None)


def test_a_proxys_password_is_sent_and_never_shown() -> None:
    proxy = proxy_for("http://model/v1", http_proxy="http://ann:p%3Aw@proxy")
    assert proxy is not None
    assert proxy.authorization == "Basic YW5uOnA6dw=="
    assert "YW5u" not in repr(proxy)


@pytest.mark.parametrize("value", ["socks5://ann:pw@proxy:1080", "http://", "http://ann:pw@proxy:x", "http://[::1"])
def test_a_proxy_that_cannot_be_used_is_told_without_its_password(value: str) -> None:
    with pytest.raises(ValueError, match=r"[Pp]roxy") as refused:
        proxy_for("http://model/v1", http_proxy=value)
    assert "pw" not in str(refused.value)
