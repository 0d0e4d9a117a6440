"""Requests that come in the create call itself: each is the line of an input file, with less said."""

from __future__ import annotations

import msgspec

METHOD = "POST"
URL = "/v1/chat/completions"
"""What a request means that leaves its `method` or its `url` out."""


class _Given(msgspec.Struct):
    custom_id: msgspec.Raw = msgspec.Raw()
    method: msgspec.Raw = msgspec.Raw()
    url: msgspec.Raw = msgspec.Raw()


_read_given = msgspec.json.Decoder(_Given).decode
_read_text = msgspec.json.Decoder(str).decode


def as_line(request: bytes) -> bytes:
    """The line of an input file that says the same as a request: nothing is written anew, what was left out is added.

    What is added stands at the end, so that places in the line are places in the request. Line ends, which in JSON
    can only stand between its parts, become spaces. Nothing is checked here.
    """
    try:
        given = _read_given(request)
    except msgspec.MsgspecError:
        return request.replace(b"\n", b" ")
    added = b"" if len(given.method) else b',"method":"%b"' % METHOD.encode()
    added += b"" if len(given.url) else b',"url":"%b"' % URL.encode()
    if added and len(given.custom_id):
        request = request[:-1] + added + b"}"
    return request.replace(b"\n", b" ")


def name_of(request: bytes) -> str | None:
    """The `custom_id` of a request that may have problems, where it can be read."""
    try:
        return _read_text(_read_given(request).custom_id)
    except msgspec.MsgspecError:
        return None


def url_of(request: bytes) -> str:
    """The address that a request is for, the usual one where it does not say or cannot be read."""
    try:
        given = _read_given(request)
        return _read_text(given.url) if len(given.url) else URL
    except msgspec.MsgspecError:
        return URL
