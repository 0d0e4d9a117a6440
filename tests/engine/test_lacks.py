"""What the llama.cpp engine is said to lack, it lacks: it fails on it, or answers as if it had not been there."""

from __future__ import annotations

from typing import Any

from overnight.domain.bodies.carry import first_lacking
from overnight.engine.lacks import LLAMA_CPP
from overnight.engine.supervise import LocalEngine
from tests.domain.bodies.test_carry import line
from tests.engine.conftest import ask, chat

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
    {"web_search_options": {}},
    {"repetition_penalty": 9.0},
    {"min_tokens": 8},
    {"bad_words": ["the"]},
    {"allowed_token_ids": [65]},
    {"chat_template": "yes"},
]


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
