"""What the llama.cpp engine is said to lack, it lacks: it fails on it, or answers as if it had not been there."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from overnight.domain.bodies.carry import first_lacking
from overnight.engine.lacks import LLAMA_CPP, lacks_of_llama_cpp
from overnight.engine.launch import llama_cpp
from overnight.engine.model import read_model
from overnight.engine.supervise import LocalEngine
from tests.domain.bodies.examples import COMPLETIONS
from tests.domain.bodies.test_carry import line
from tests.engine.conftest import QUICK, ask, chat
from tests.tiny_model import CHAT_TEMPLATE, write_tiny_model

FUNCTION = {"name": "f", "parameters": {"type": "object"}}
PARTS: list[dict[str, Any]] = [
    {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}},
    {"type": "input_audio", "input_audio": {"data": "AA", "format": "wav"}},
    {"type": "file", "file": {"file_data": "AA", "filename": "a.pdf"}},
    {"type": "video_url", "video_url": {"url": "https://127.0.0.1/a"}},
    {"type": "audio_url", "audio_url": {"url": "https://127.0.0.1/a"}},
    {"type": "image_embeds", "image_embeds": "AA"},
    {"type": "refusal", "refusal": "no"},
    {"type": "thinking", "thinking": "hm"},
]
DROPPED: list[dict[str, Any]] = [
    {"guided_json": {"type": "object"}},
    {"guided_regex": "yes|no"},
    {"guided_choice": ["yes", "no"]},
    {"structured_outputs": {"choice": ["yes", "no"]}},
    {"functions": [FUNCTION], "function_call": {"name": "f"}},
    {"modalities": ["text", "audio"], "audio": {"format": "wav", "voice": "alloy"}},
    {"prediction": {"type": "content", "content": "yes"}},
    {"verbosity": "low"},
    {"web_search_options": {}},
    {"repetition_penalty": 9.0},
    {"min_tokens": 8},
    {"bad_words": ["the"]},
    {"allowed_token_ids": [65]},
    {"chat_template": "yes"},
]
SHORT = {"type": "object", "properties": {"x": {"enum": ["a"]}}, "required": ["x"]}
TOOLS = [{"type": "function", "function": {"name": name, "parameters": SHORT}} for name in ("f", "g")]
CALL = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
LISTED = "{% for tool in tools %}{{ tool.function.name + '\n' }}{% endfor %}"
CALLS = (
    "{% for message in messages %}{{ '<|im_start|>' + message.role + '\n' }}{{ message.content or '' }}"
    "{% for call in message.tool_calls or [] %}"
    "{{ 'CALL ' + call.function.name + ' WITH ' + (call.function.arguments | tojson) + ' END\n' }}"
    "{% endfor %}{{ '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
EFFORT = "{{ 'Reasoning: ' + (reasoning_effort or 'medium') + '\n' }}"
OF_TOOLS = ("tools", "messages.tool", "messages.tool_calls", "tool_choice", "parallel_tool_calls")
AT_ONCE = {"logit_bias": {"290": 100}}
"""The tiny model ends its answer at once where it may."""


async def test_it_fails_on_the_parts_and_tools_it_is_said_to_lack(engine: LocalEngine) -> None:
    custom: dict[str, Any] = {"tools": [{"type": "custom", "custom": {"name": "c"}}]}
    bodies: list[dict[str, Any]] = [custom, *({"messages": [{"role": "user", "content": [part]}]} for part in PARTS)]
    for body in bodies:
        reply = await ask(engine, "/v1/chat/completions", chat("hi", max_tokens=1) | body)
        assert reply.status_code in (400, 500), body
        assert first_lacking(line(body), LLAMA_CPP) is not None


async def test_it_answers_as_if_the_fields_had_not_been_there(engine: LocalEngine) -> None:
    plain = await ask(engine, "/v1/chat/completions", chat("hi", max_tokens=8))
    for more in DROPPED:
        reply = await ask(engine, "/v1/chat/completions", chat("hi", max_tokens=8, **more))
        assert reply.json()["choices"] == plain.json()["choices"], more
        assert first_lacking(line(more), LLAMA_CPP) is not None


@pytest.fixture
async def caller(tmp_path: Path) -> AsyncIterator[LocalEngine]:
    """An engine whose model has a place for an effort, for tools and for calls in its prompts."""
    path = write_tiny_model(tmp_path / "caller.gguf", template=EFFORT + LISTED + CALLS)
    async with LocalEngine(llama_cpp(read_model(path), slots=1, context_length=512, threads=1), pace=QUICK) as engine:
        await engine.wait_ready()
        yield engine


async def prompt_of(engine: LocalEngine, *more: dict[str, Any], **fields: Any) -> str:
    body = chat("hi", **fields)
    body["messages"] += [*more, {"role": "user", "content": "go"}] if more else []
    reply = await ask(engine, "/apply-template", body)
    return str(reply.json()["prompt"])


async def test_tools_are_left_out_of_a_prompt_without_a_place_for_them(
    engine: LocalEngine, caller: LocalEngine
) -> None:
    called = {"role": "assistant", "content": None, "tool_calls": [CALL]}
    heard = {"role": "tool", "tool_call_id": "1", "content": "x"}
    plain = await prompt_of(engine)

    assert await prompt_of(engine, tools=TOOLS) == plain
    assert "f" not in (await prompt_of(engine, called)).replace("<|im", "")
    assert {"tools", "tool_choice", "messages.tool", "messages.tool_calls"} <= engine.launch.lacks
    assert (await prompt_of(caller, tools=TOOLS)).startswith("Reasoning: medium\nf\ng\n")
    assert "CALL f" in await prompt_of(caller, called, heard, tools=TOOLS)
    added = {"tools": TOOLS, "tool_choice": "required", "messages": [chat("hi")["messages"][0], called, heard]}
    assert first_lacking(line(added), caller.launch.lacks) is None


async def test_an_effort_is_left_out_of_a_prompt_without_a_place_for_it(
    engine: LocalEngine, caller: LocalEngine
) -> None:
    assert await prompt_of(engine, reasoning_effort="high") == await prompt_of(engine)
    assert first_lacking(line({"reasoning_effort": "high"}), engine.launch.lacks) is not None
    assert "Reasoning: high\n" in await prompt_of(caller, reasoning_effort="high")
    assert first_lacking(line({"reasoning_effort": "high"}), caller.launch.lacks) is None


async def test_a_call_that_is_required_comes_and_a_named_one_may_not(caller: LocalEngine) -> None:
    named = {"type": "function", "function": {"name": "g"}}
    allowed = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [TOOLS[1]]}}
    ends = {}
    for choice in ("auto", "required", named, allowed):
        body = chat("hi", max_tokens=60, tools=TOOLS, tool_choice=choice, **AT_ONCE)
        reply = await ask(caller, "/v1/chat/completions", body)
        is_lacking = first_lacking(line({"tool_choice": choice}), caller.launch.lacks) is not None
        ends[json.dumps(choice)] = (reply.json()["choices"][0]["finish_reason"], is_lacking)

    assert list(ends.values()) == [("stop", False), ("tool_calls", False), ("stop", True), ("stop", True)]


@pytest.mark.parametrize(
    ("template", "lacking"),
    [
        ("", {"reasoning_effort", *OF_TOOLS}),
        (CHAT_TEMPLATE, {"reasoning_effort", *OF_TOOLS}),
        (EFFORT, set(OF_TOOLS)),
        (LISTED, {"reasoning_effort", "tool_choice.required", "messages.tool_calls"}),
        (LISTED + CALLS + EFFORT, set()),
    ],
)
def test_what_a_template_has_no_place_for_is_lacking(template: str, lacking: set[str]) -> None:
    assert lacks_of_llama_cpp(template) - LLAMA_CPP == lacking


def test_a_template_that_is_passed_through_takes_the_place_of_the_models_own(tiny: Path) -> None:
    own = llama_cpp(read_model(tiny), slots=1)
    other = llama_cpp(read_model(tiny), slots=1, args=[f"--chat-template={LISTED + CALLS}"])

    assert "tools" in own.lacks
    assert "tools" not in other.lacks


async def test_a_completion_of_text_has_no_echo_and_probabilities_in_another_form(engine: LocalEngine) -> None:
    plain = await ask(engine, COMPLETIONS, {"prompt": "hi", "max_tokens": 2})
    echoed = await ask(engine, COMPLETIONS, {"prompt": "hi", "max_tokens": 2, "echo": True})
    likely = await ask(engine, COMPLETIONS, {"prompt": "hi", "max_tokens": 2, "logprobs": 2})

    assert echoed.json()["choices"] == plain.json()["choices"]
    assert "token_logprobs" not in likely.json()["choices"][0]["logprobs"]
    for more in ({"echo": True}, {"logprobs": 2}, {"logprobs": 0}):
        assert first_lacking(line(more, COMPLETIONS), engine.launch.lacks) is not None
