"""How an engine is asked for the number of tokens of a prompt: the calls, without the sending."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, NamedTuple, TypeAlias

import msgspec

CHAT = "/v1/chat/completions"
_BYTES_BESIDE = 64
"""Tokens that a tokenizer adds of its own to a text at the most, such as one for its beginning."""


class Ask(NamedTuple):
    """A POST to the engine, at its root."""

    path: str
    body: bytes


Counting: TypeAlias = Generator[Ask, bytes, int | None]
"""Yields calls, is sent the body of each reply, and returns the tokens of the longest prompt; None: it cannot tell.

A reply that is not what it should be raises msgspec.MsgspecError.
"""
Count: TypeAlias = Callable[[str, bytes, int], Counting]
"""Begins to count for the URL of a target and a body. Of several inputs to embed those may be left out that surely
have no more than so many tokens."""


class _Prompts(msgspec.Struct):
    prompt: Any = None
    input: Any = None
    truncate_prompt_tokens: Any = None
    add_special_tokens: bool = True


class _Counted(msgspec.Struct):
    count: int


class _InputTokens(msgspec.Struct):
    input_tokens: int


class _Tokens(msgspec.Struct):
    tokens: list[Any]


class _Message(msgspec.Struct):
    content: Any = None


class _Chat(msgspec.Struct):
    messages: list[_Message]
    truncate_prompt_tokens: Any = None


_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_prompts = msgspec.json.Decoder(_Prompts).decode
_chat = msgspec.json.Decoder(_Chat).decode
_counted = msgspec.json.Decoder(_Counted).decode
_input_tokens = msgspec.json.Decoder(_InputTokens).decode
_tokens = msgspec.json.Decoder(_Tokens).decode


def count_llama_cpp(url: str, body: bytes, least: int) -> Counting:
    """It takes a chat's whole body and counts as it would before it runs it."""
    if url == CHAT:
        return _input_tokens((yield Ask("/v1/chat/completions/input_tokens", body))).input_tokens
    asked = _prompts(body)
    return (yield from _longest(asked, least, _text_of_llama_cpp))


def _text_of_llama_cpp(text: str, asked: _Prompts) -> Counting:
    wanted = {"content": text, "add_special": True, "parse_special": True}
    return len(_tokens((yield Ask("/tokenize", msgspec.json.encode(wanted)))).tokens)


_OF_TEMPLATE = (
    "model", "messages", "tools", "add_generation_prompt", "continue_final_message", "add_special_tokens",
    "chat_template", "mm_processor_kwargs", "media_io_kwargs",
)  # fmt: skip
_OF_TEMPLATE_BY_NAME = ("reasoning_effort", "documents")
"""Fields that a chat hands to its template, and for which this call has no fields of its own."""


def count_vllm(url: str, body: bytes, least: int) -> Counting:
    """It takes what makes the prompt of a chat, or one text. What is no text has tokens that it does not count here."""
    if url != CHAT:
        asked = _prompts(body)
        if asked.truncate_prompt_tokens is not None:
            return None
        return (yield from _longest(asked, least, _text_of_vllm))
    chat = _chat(body)
    if chat.truncate_prompt_tokens is not None or not all(_is_text(message.content) for message in chat.messages):
        return None
    return _counted((yield Ask("/tokenize", _template_of(body)))).count


def _text_of_vllm(text: str, asked: _Prompts) -> Counting:
    wanted = {"prompt": text, "add_special_tokens": asked.add_special_tokens}
    return _counted((yield Ask("/tokenize", msgspec.json.encode(wanted)))).count


def _template_of(body: bytes) -> bytes:
    members = _members(body)
    wanted: dict[str, Any] = {name: members[name] for name in _OF_TEMPLATE if name in members}
    kwargs = msgspec.json.decode(members.get("chat_template_kwargs", b"null"), type=dict[str, msgspec.Raw] | None)
    by_name = {name: members[name] for name in _OF_TEMPLATE_BY_NAME if name in members}
    if kwargs or by_name:
        wanted["chat_template_kwargs"] = {**by_name, **(kwargs or {})}
    return msgspec.json.encode(wanted)


def _is_text(content: object) -> bool:
    if not isinstance(content, list):
        return True
    return all(isinstance(part, dict) and part.get("type") in ("text", "refusal", None) for part in content)


def _longest(asked: _Prompts, least: int, text: Callable[[str, _Prompts], Counting]) -> Counting:
    """The tokens of the longest of one or several prompts, each a text or tokens."""
    found = asked.prompt if asked.prompt is not None else asked.input
    several = found if isinstance(found, list) and not _are_tokens(found) else [found]
    longest = 0
    for one in several:
        if isinstance(one, list) and _are_tokens(one):
            longest = max(longest, len(one))
        elif not isinstance(one, str):
            return None
        elif asked.prompt is not None or len(one.encode()) + _BYTES_BESIDE > least:
            counted = yield from text(one, asked)
            if counted is None:
                return None
            longest = max(longest, counted)
    return longest


def _are_tokens(found: list[Any]) -> bool:
    return bool(found) and all(type(one) is int for one in found)
