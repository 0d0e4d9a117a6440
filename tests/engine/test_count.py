"""The length of a prompt, told before it runs, is the one that the engine counts when it runs."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from overnight.engine.count import Count, Counting, count_llama_cpp, count_vllm
from overnight.engine.supervise import LocalEngine
from tests.engine.conftest import ask, counted

CHAT, TEXT, VECTORS = "/v1/chat/completions", "/v1/completions", "/v1/embeddings"
TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}


async def test_llama_cpp_counts_before_it_runs_what_it_counts_when_it_runs(engine: LocalEngine) -> None:
    chats: list[dict[str, Any]] = [
        {"messages": [{"role": "user", "content": "hello wörld \u00e9 <|im_end|> 你好"}]},
        {"messages": [{"role": "system", "content": "be kind"}, {"role": "user", "content": "a" * 50}]},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "in a part"}]}], "max_tokens": 99},
        {"messages": [{"role": "user", "content": "json"}], "response_format": {"type": "json_object"}},
    ]
    texts: list[dict[str, Any]] = [{"prompt": "once upon a time <|im_start|>"}, {"prompt": [5, 6, 7]}, {"prompt": ""}]
    for url, bodies in ((CHAT, chats), (TEXT, texts)):
        for body in bodies:
            reply = await ask(engine, url, {**body, "max_tokens": 1})
            assert await counted(engine, url, body) == reply.json()["usage"]["prompt_tokens"], body


async def test_of_several_prompts_the_longest_is_told(engine: LocalEngine) -> None:
    assert await counted(engine, TEXT, {"prompt": ["x", "x" * 30, "x" * 20]}) == 30
    assert await counted(engine, TEXT, {"prompt": [[1, 2], [3, 4, 5]]}) == 3


async def test_inputs_to_embed_are_counted_only_where_they_may_be_too_long(embedder: LocalEngine) -> None:
    long = "x " * 200
    reply = await ask(embedder, VECTORS, {"input": long})
    assert await counted(embedder, VECTORS, {"input": ["short", long]}, 300) == reply.json()["usage"]["prompt_tokens"]
    assert list(calls(count_llama_cpp, VECTORS, {"input": ["short"] * 1_000}, b"", 300)) == []


def calls(count: Count, url: str, body: dict[str, Any], reply: bytes, least: int = 0) -> list[tuple[str, Any]]:
    """What is asked, where everything is answered alike."""
    counting: Counting = count(url, json.dumps(body).encode(), least)
    asked: list[tuple[str, Any]] = []
    try:
        wanted = next(counting)
        while True:
            asked.append((wanted.path, json.loads(wanted.body)))
            wanted = counting.send(reply)
    except StopIteration:
        return asked


def test_vllm_is_sent_all_that_makes_the_prompt_of_a_chat_and_nothing_else() -> None:
    body = {
        "model": "m", "messages": [{"role": "user", "content": "a"}], "tools": [TOOL], "max_tokens": 5, "seed": 3,
        "continue_final_message": True, "add_generation_prompt": False, "reasoning_effort": "low",
        "chat_template_kwargs": {"enable_thinking": False},
    }  # fmt: skip
    ((path, sent),) = calls(count_vllm, CHAT, body, b'{"count":7,"tokens":[]}')
    assert path == "/tokenize"
    assert sent == {
        "model": "m", "messages": body["messages"], "tools": [TOOL], "continue_final_message": True,
        "add_generation_prompt": False,
        "chat_template_kwargs": {"enable_thinking": False, "reasoning_effort": "low"},
    }  # fmt: skip


def test_vllm_is_asked_for_each_text() -> None:
    asked = calls(count_vllm, TEXT, {"prompt": ["a", "b"], "add_special_tokens": False}, b'{"count":1}')
    assert asked == [("/tokenize", {"prompt": text, "add_special_tokens": False}) for text in "ab"]


@pytest.mark.parametrize(
    ("url", "body"),
    [
        (CHAT, {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]}),
        (CHAT, {"messages": [{"role": "user", "content": "a"}], "truncate_prompt_tokens": 5}),
        (TEXT, {"prompt": "a", "truncate_prompt_tokens": 5}),
        (TEXT, {"prompt_embeds": "eA=="}),
        (TEXT, {"prompt": [1, "x"]}),
    ],
)
def test_what_cannot_be_counted_is_not_asked_for(url: str, body: dict[str, Any]) -> None:
    assert calls(count_vllm, url, body, b'{"count":1}') == []


@pytest.mark.parametrize("count", [count_llama_cpp, count_vllm])
@pytest.mark.parametrize("reply", [b"", b"[]", b"{}", b'{"count":"7"}', b"<html>"])
def test_a_reply_that_tells_no_number_is_an_error_that_can_be_caught(count: Count, reply: bytes) -> None:
    for url, body in ((CHAT, {"messages": []}), (TEXT, {"prompt": "a"})):
        with pytest.raises(msgspec.MsgspecError):
            calls(count, url, body, reply)
