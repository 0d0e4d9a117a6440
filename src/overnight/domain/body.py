"""What is sent to a model server: the request's body as it was written, and only what must be added or replaced."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

_decode_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class Request(msgspec.Struct):
    """A stored line of an input file, its body left as it was written."""

    custom_id: str
    body: msgspec.Raw
    url: str = "/v1/chat/completions"


read_request = msgspec.json.Decoder(Request).decode
"""Read a line that was checked before."""

SAMPLING = ("temperature", "top_p", "top_k")
OUTPUT_LIMITS = {
    "/v1/chat/completions": ("max_completion_tokens", "max_tokens"),
    "/v1/completions": ("max_tokens",),
    "/v1/embeddings": (),
}
"""The names under which a body may give its own output limit."""


def prepare(body: bytes, url: str, defaults: Mapping[str, Any], model: str | None) -> bytes:
    """Make the body that is sent.

    `defaults` are the batch's (`temperature`, `top_p`, `top_k`; as output limit the less of `max_decoding_length` and
    `max_context_length`): each is added where the body has no value of its own. `model`, where given, replaces the
    body's: the name that the server knows. Everything else is passed on byte for byte, big numbers included.
    """
    if not defaults and model is None:
        return body
    members = _decode_members(body)
    changed: dict[str, bytes] = {}
    if model is not None:
        changed["model"] = msgspec.json.encode(model)
    if url != "/v1/embeddings":
        changed.update(_lacking(members, url, defaults))
    if not changed:
        return body
    parts = [
        msgspec.json.encode(name) + b":" + (changed.pop(name) if name in changed else bytes(value))
        for name, value in members.items()
    ]
    parts += [msgspec.json.encode(name) + b":" + value for name, value in changed.items()]
    return b"{" + b",".join(parts) + b"}"


def _lacking(members: Mapping[str, msgspec.Raw], url: str, defaults: Mapping[str, Any]) -> dict[str, bytes]:
    def has(name: str) -> bool:
        return name in members and bytes(members[name]) != b"null"

    found = {
        name: msgspec.json.encode(defaults[name])
        for name in SAMPLING
        if defaults.get(name) is not None and not has(name)
    }
    # An answer cannot be longer than the context that holds it.
    limits = [
        defaults[name] for name in ("max_decoding_length", "max_context_length") if defaults.get(name) is not None
    ]
    limit = min(limits, default=None)
    if limit is not None and not any(has(name) for name in OUTPUT_LIMITS[url]):
        found["max_tokens"] = msgspec.json.encode(limit)
    return found
