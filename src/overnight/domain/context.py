"""How long a request's prompt and answer may be together, decided before it runs."""

from __future__ import annotations

from typing import Any

import msgspec

ROOM_FOR_TEMPLATE = 1_024
"""Tokens that a chat template adds of its own at the most, such as a system prompt.

What it adds to each message is less than the message's own JSON, which is not part of the prompt.
"""
OF_MODEL = "model context"
OF_BATCH = "the batch's max_context_length"
_EMBEDDINGS = "/v1/embeddings"
_NAMES = ("max_completion_tokens", "max_tokens", "n_predict")


class _Limits(msgspec.Struct, gc=False):
    max_completion_tokens: Any = None
    max_tokens: Any = None
    n_predict: Any = None


class _Prompts(msgspec.Struct, gc=False):
    prompt: Any = None
    input: Any = None


class _Line(msgspec.Struct, gc=False):
    body: _Prompts


_read_limits = msgspec.json.Decoder(_Limits).decode
_read_line = msgspec.json.Decoder(_Line).decode
_read_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class Room(msgspec.Struct, frozen=True):
    """Tokens that a request has for its prompt and its answer together."""

    tokens: int
    of_batch: bool = False
    """It is the batch that allows no more (`max_context_length`); else the model."""
    ends_answers: bool = True
    """The server itself ends an answer without a limit there."""


def room_for(of_model: int, of_server: int, of_batch: int | None) -> Room:
    """The least of what the model is served with, and the batch allows.

    `of_server` is where its server ends answers: engines round up what they are asked for.
    """
    if of_batch is not None and of_batch < of_model:
        return Room(of_batch, of_batch=True, ends_answers=False)
    return Room(of_model, ends_answers=of_model == of_server)


def may_need_more(body: bytes | memoryview, url: str, room: Room) -> bool:
    """Whether the request may need more than there is; only then its prompt has to be counted.

    A token stands for at least one byte of the prompt, and writing the prompt as JSON makes no byte of it fewer.
    """
    longest = len(body) + ROOM_FOR_TEMPLATE
    if url == _EMBEDDINGS:
        return longest > room.tokens
    limit = _output_limit(body)
    if limit is None:
        return not room.ends_answers or longest >= room.tokens
    return longest + limit > room.tokens


def fit(body: bytes, url: str, prompt: int, room: Room) -> bytes | None:
    """The body with its answer limited to what a prompt of so many tokens leaves; None: it leaves no token of it.

    So an answer ends where the context does, whichever limit was asked for: as with a server that has such a context.
    """
    left = room.tokens - prompt
    if url == _EMBEDDINGS:
        return body if left >= 0 else None
    limit = _output_limit(body)
    if left < min(1, limit if limit is not None else 1):
        return None
    if (limit is None and room.ends_answers) or (limit is not None and limit <= left):
        return body
    return _limited(body, left)


def too_long(prompt: int, room: Room) -> str:
    """The sentence for a request whose prompt leaves no room."""
    return tell_too_long(prompt, room.tokens, OF_BATCH if room.of_batch else OF_MODEL)


def tell_too_long(prompt: int, most: int, limit: str) -> str:
    """The sentence for a prompt of so many tokens where `limit` allows `most`."""
    if prompt > most:
        return f"Prompt length {prompt} exceeds {limit} {most}"
    return f"Prompt length {prompt} leaves no room for an answer in {limit} {most}"


def has_several_prompts(request: bytes) -> bool:
    """Whether one stored request asks for more than one prompt or input to be computed."""
    prompts = _read_line(request).body
    found = prompts.prompt if prompts.prompt is not None else prompts.input
    return isinstance(found, list) and len(found) > 1 and not all(type(one) is int for one in found)


def _output_limit(body: bytes | memoryview) -> int | None:
    """The least of the limits that the body has for its answer."""
    limits = _read_limits(body)
    found = (limits.max_completion_tokens, limits.max_tokens, limits.n_predict)
    # -1 is llama.cpp's word for no limit.
    return min((limit for limit in found if type(limit) is int and limit >= 0), default=None)


def _limited(body: bytes, most: int) -> bytes:
    members = _read_members(body)
    value = str(most).encode()
    given = [name for name in _NAMES if name in members and bytes(members[name]) != b"null"]
    changed = dict.fromkeys(given or ("max_tokens",), value)
    parts = [msgspec.json.encode(n) + b":" + changed.pop(n, bytes(raw)) for n, raw in members.items()]
    parts += [msgspec.json.encode(name) + b":" + raw for name, raw in changed.items()]
    return b"{" + b",".join(parts) + b"}"
