"""Requests share a group when their prompts begin alike, and only then."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from overnight.domain.prefix import PROMPT_START, group_of, read_shape

USER = {"role": "user", "content": "Hello."}


def group(url: str = "/v1/chat/completions", **body: Any) -> int | None:
    line = {"custom_id": "a", "method": "POST", "url": url, "body": {"model": "m", **body}}
    return group_of(read_shape(json.dumps(line).encode()))


def chat(*roles_and_texts: tuple[str, str], **body: Any) -> int | None:
    return group(messages=[{"role": role, "content": text} for role, text in roles_and_texts], **body)


def test_chats_with_the_same_system_message_share_a_group() -> None:
    assert chat(("system", "Be brief."), ("user", "One?")) == chat(("system", "Be brief."), ("user", "Two?"))
    assert chat(("system", "Be brief."), ("user", "One?")) != chat(("system", "Be kind."), ("user", "One?"))


def test_a_lone_question_shares_nothing() -> None:
    assert chat(("user", "One?")) is None


def test_a_lone_instruction_is_still_an_instruction() -> None:
    assert chat(("developer", "Be brief.")) is not None


def test_the_tools_are_part_of_how_a_prompt_begins() -> None:
    same = chat(("system", "Be brief."), ("user", "One?"), tools=[{"type": "function"}])
    assert same == chat(("system", "Be brief."), ("user", "Two?"), tools=[{"type": "function"}])
    assert same != chat(("system", "Be brief."), ("user", "One?"), tools=[])
    assert chat(("user", "One?"), tools=[{"type": "function"}]) == chat(("user", "Two?"), tools=[{"type": "function"}])


def test_examples_before_the_question_are_shared() -> None:
    assert chat(("user", "2+2"), ("assistant", "4"), ("user", "1+1")) == chat(
        ("user", "2+2"), ("assistant", "4"), ("user", "3+3")
    )


def test_long_prompts_are_compared_by_their_beginning() -> None:
    start = "Translate. " * PROMPT_START
    url = "/v1/completions"
    assert group(url, prompt=start + "one") == group(url, prompt=start + "two")
    assert group(url, prompt="x" + start) != group(url, prompt=start)
    assert group(url, prompt="short") is None


def test_embeddings_share_nothing() -> None:
    assert group("/v1/embeddings", input="x" * 1_000) is None


@pytest.mark.parametrize("first", [{"role": 1}, {"role": None}, {}])
def test_a_message_with_a_strange_role_is_no_instruction(first: dict[str, Any]) -> None:
    assert group(messages=[first]) is None


def test_fields_of_other_endpoints_may_be_anything() -> None:
    assert group("/v1/completions", prompt="short", messages=5) is None


def test_what_was_never_checked_is_not_read() -> None:
    with pytest.raises(msgspec.MsgspecError):
        read_shape(b'{"custom_id":"a","url":"/v1/embeddings","body":{}}')
