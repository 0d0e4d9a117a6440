"""What a route cannot carry is found wherever it stands in a body."""

from __future__ import annotations

import json
from typing import Any

import pytest

from overnight.domain.bodies import BODIES
from overnight.domain.bodies.carry import first_lacking
from overnight.engine.lacks import LLAMA_CPP
from tests.domain.bodies.examples import CALL, CHAT, COMPLETIONS, GOOD, LEAST, TOOL, USER, answers, says

IMAGE = {"type": "image_url", "image_url": {"url": "u"}}
CUSTOM = {"type": "custom", "custom": {"name": "c"}}
TEXT = {"type": "text", "text": "image_url"}
NAMED = {"type": "function", "function": {"name": "look_up"}}


def line(added: dict[str, Any], url: str = CHAT) -> bytes:
    return json.dumps({"custom_id": "a", "method": "POST", "url": url, "body": LEAST[url] | added}).encode()


@pytest.mark.parametrize(
    ("added", "where", "lacks"),
    [
        ({"guided_json": {}}, "guided_json", "guided_json"),
        ({"min_tokens": 0}, "min_tokens", "min_tokens"),
        (says(TEXT, IMAGE), "messages[0].content[1]", "messages.image_url"),
        ({"messages": [USER, answers(content="x")["messages"][1], *says(IMAGE)["messages"]]}, "messages[2].content[0]",
         "messages.image_url"),
        ({"tools": [TOOL, CUSTOM]}, "tools[1]", "tools.custom"),
        ({"modalities": ["text", "audio"]}, "modalities[1]", "modalities.audio"),
        ({"tools": [TOOL], "tool_choice": "required"}, "tool_choice", "tool_choice.required"),
        ({"tools": [TOOL], "tool_choice": NAMED}, "tool_choice", "tool_choice.function"),
        (answers(tool_calls=[CALL]), "messages[1].tool_calls", "messages.tool_calls"),
        (answers(tool_calls=[CALL, CUSTOM | {"id": "c"}]), "messages[1].tool_calls[1]", "messages.custom"),
        (answers(function_call={"name": "f", "arguments": "{}"}), "messages[1].function_call",
         "messages.function_call"),
        ({"messages": [USER, {"role": "tool", "tool_call_id": "a", "content": "x"}]}, "messages[1]", "messages.tool"),
        ({"messages": [USER, {"role": "system", "content": "x", "tools": [TOOL]}]}, "messages[1].tools",
         "messages.tools"),
        ({"echo": True}, "echo", "echo.true"),
    ],
)  # fmt: skip
def test_what_a_route_lacks_is_found_with_its_place(added: dict[str, Any], where: str, lacks: str) -> None:
    assert first_lacking(line(added), frozenset({lacks})) == (where, lacks)
    assert first_lacking(line(added), frozenset({lacks + "_"})) is None


@pytest.mark.parametrize(
    "added",
    [
        {"guided_json": None, "tools": None, "modalities": None},
        {"tools": [], "bad_words": [], "echo": False, "logprobs": True},
        {"tools": [TOOL], "modalities": ["text"], "user": "guided_json"},
        says(TEXT),
        answers(content=None, tool_calls=[]),
    ],
)
def test_what_is_null_or_only_looks_like_it_is_carried(added: dict[str, Any]) -> None:
    assert first_lacking(line(added), LLAMA_CPP) is None


@pytest.mark.parametrize("number", [0, 2])
def test_probabilities_are_told_apart_by_how_they_are_asked_for(number: int) -> None:
    asked = line({"logprobs": number}, COMPLETIONS)
    assert first_lacking(asked, frozenset({"logprobs.number"})) == ("logprobs", "logprobs.number")
    assert first_lacking(line({"logprobs": True}), frozenset({"logprobs.number"})) is None


@pytest.mark.parametrize(("url", "added"), [(url, added) for url, bodies in GOOD.items() for added in bodies])
def test_every_body_that_passed_the_check_can_be_looked_through(url: str, added: dict[str, Any]) -> None:
    found = first_lacking(line(added, url), LLAMA_CPP)

    assert found is None or found[1] in LLAMA_CPP


def test_the_fields_that_the_engine_lacks_are_fields_of_some_body() -> None:
    known = {name for body in BODIES.values() for name in body.schema["properties"]}

    assert {name.partition(".")[0] for name in LLAMA_CPP} <= known
