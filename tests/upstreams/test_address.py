"""Base URLs: which can be called, and what is made of them."""

from __future__ import annotations

import pytest

from overnight.upstreams.address import read_address
from overnight.upstreams.http import Endpoint
from overnight.upstreams.request import Heads


@pytest.mark.parametrize(
    ("url", "secure", "host", "port", "prefix", "authority"),
    [
        ("http://127.0.0.1:8000/v1", False, "127.0.0.1", 8000, "/v1", "127.0.0.1:8000"),
        ("http://localhost/v1/", False, "localhost", 80, "/v1", "localhost"),
        ("https://api.example.com", True, "api.example.com", 443, "", "api.example.com"),
        ("https://api.example.com:443/", True, "api.example.com", 443, "", "api.example.com"),
        ("http://example.com:443/a/b//", False, "example.com", 443, "/a/b", "example.com:443"),
        ("http://[::1]:8000/v1", False, "::1", 8000, "/v1", "[::1]:8000"),
        ("https://[2001:DB8::1]/v1", True, "2001:db8::1", 443, "/v1", "[2001:db8::1]"),
        ("HTTPS://Host_1.internal.:8443/x%20y", True, "Host_1.internal.", 8443, "/x%20y", "Host_1.internal.:8443"),
    ],
)
def test_a_base_url_is_taken_apart(url: str, secure: bool, host: str, port: int, prefix: str, authority: str) -> None:
    address = read_address(url)
    assert (address.secure, address.host, address.port, address.prefix) == (secure, host, port, prefix)
    assert address.authority == authority


@pytest.mark.parametrize(
    "url",
    [
        "",
        "127.0.0.1:8000/v1",
        "//host/v1",
        "ftp://host/v1",
        "unix:///run/server.sock",
        "http://",
        "http:///v1",
        "http://:80/v1",
        "http://host:/v1",
        "http://host:0/v1",
        "http://host:65536/v1",
        "http://host:-1/v1",
        "http://host:8o/v1",
        "http://host:１/v1",
        "http://host/v1?x=1",
        "http://host/v1?",
        "http://host/v1#part",
        "http://ho st/v1",
        "http://host\r\nX: y/v1",
        "http://host/v1\n",
        "\thttp://host/v1",
        "http://hôte/v1",
        "http://host/ä",
        "http://[::1/v1",
        "http://[::1]x/v1",
        "http://[12345::]/v1",
        "http://[fe80::1%25eth0]/v1",
        "http://::1:80/v1",
        "http://-host/v1",
        "http://ho$t/v1",
    ],
)
def test_what_cannot_be_called_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="base URL"):
        read_address(url)


@pytest.mark.parametrize("url", ["http://ann:s3cret@host/v1", "http://s3cret@host/v1", "https://:s3cret@[::1]:80/v1"])
def test_a_secret_in_a_base_url_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(ValueError, match="API key") as refused:
        read_address(url)
    assert "s3cret" not in str(refused.value)


def test_an_endpoint_never_shows_its_key() -> None:
    assert "sk-secret" not in repr(Endpoint("http://host/v1", "sk-secret"))


@pytest.mark.parametrize("key", ["", "a b", "a\r\nX: y", "a\n", "clé"])
def test_a_key_that_could_not_stand_in_a_header_is_refused(key: str) -> None:
    with pytest.raises(ValueError, match="API key") as refused:
        Endpoint("http://host/v1", key)
    assert not key or key not in str(refused.value)


def test_a_head_ends_where_the_length_is_written() -> None:
    endpoint = Endpoint("http://host:81/v1", "sk-1")
    head = Heads(endpoint, read_address(endpoint.base_url), None).of("POST", "/embeddings", ())
    lines = head.decode().split("\r\n")
    assert lines[0] == "POST /v1/embeddings HTTP/1.1"
    assert lines[-1] == "Content-Length: "
    assert {"Host: host:81", "Authorization: Bearer sk-1", "Content-Type: application/json"} < set(lines)


def test_a_callers_content_type_replaces_ours() -> None:
    endpoint = Endpoint("http://host/v1")
    head = Heads(endpoint, read_address(endpoint.base_url), None).of("POST", "/x", (("content-type", "text/plain"),))
    assert head.lower().count(b"content-type") == 1
    assert b"text/plain" in head
