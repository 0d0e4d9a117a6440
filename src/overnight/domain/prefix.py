"""Which requests begin with the same prompt, so that a model server need compute it only once."""

from __future__ import annotations

import msgspec

from overnight.domain.targets import TARGETS

PROMPT_START = 256
"""Bytes of a plain prompt that are compared; instructions shared by many prompts are longer than this."""


class _Message(msgspec.Struct):
    role: str = ""


class _Body(msgspec.Struct, gc=False):
    model: str
    messages: msgspec.Raw = msgspec.Raw()
    tools: msgspec.Raw = msgspec.Raw()
    prompt: msgspec.Raw = msgspec.Raw()


class Shape(msgspec.Struct, gc=False):
    """What has to be known of a request before it runs; the rest of its line is not looked at."""

    custom_id: str
    url: str
    body: _Body


read_shape = msgspec.json.Decoder(Shape).decode
"""Read a line that was checked before. Raises msgspec.MsgspecError where it is not what was checked."""

_read_messages = msgspec.json.Decoder(list[msgspec.Raw]).decode
_read_message = msgspec.json.Decoder(_Message).decode


def group_of(request: Shape) -> int | None:
    """A number that requests share whose prompts begin alike; None for one that begins like no other.

    A chat begins with its tools and its system message, or without one with its first message if more follow;
    a plain prompt with its first bytes. They are compared as they were written.
    """
    needs = TARGETS[request.url].needs
    if needs == "messages":
        return _group_of_chat(request.body)
    if needs == "prompt" and len(request.body.prompt) > PROMPT_START:
        return hash(bytes(request.body.prompt)[:PROMPT_START])
    return None


def _group_of_chat(body: _Body) -> int | None:
    tools = bytes(body.tools)
    messages = _read_messages(body.messages)
    if len(messages) > 1 or _is_instruction(messages[0]):
        return hash(tools + bytes(messages[0]))
    return hash(tools) if tools else None


def _is_instruction(message: msgspec.Raw) -> bool:
    try:
        return _read_message(message).role in ("system", "developer")
    except msgspec.ValidationError:
        return False
