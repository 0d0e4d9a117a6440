"""Interactive requests on the served product, by the official SDK, beside a batch."""

from __future__ import annotations

import asyncio

import openai
import pytest

from tests.process import Served, chat
from tests.witness import Witness

MODEL = "test-model"


def test_every_interactive_call_of_the_sdk_is_answered(sdk: openai.OpenAI) -> None:
    said = sdk.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "hello"}])
    assert said.choices[0].message.content == "echo: hello"
    assert sdk.completions.create(model=MODEL, prompt="once").choices[0].text == "echo: once"
    assert sdk.embeddings.create(model=MODEL, input="text", encoding_format="float").data[0].embedding == [0.25, -0.5]
    chunks = sdk.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "hello"}], stream=True)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "echo: hello"
    with pytest.raises(openai.NotFoundError):
        sdk.chat.completions.create(model="nobody", messages=[{"role": "user", "content": "hello"}])
    with pytest.raises(openai.BadRequestError):
        sdk.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "[status 400]"}])
    again = sdk.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "[once 503]"}])
    assert again.choices[0].message.content == "echo: [once 503]"


async def test_streams_run_beside_each_other_and_a_batch(service: Served, witness: Witness) -> None:
    batch = service.submit([chat(f"b{i}", f"[slow 0.05] {i}") for i in range(100)])

    async def one(sdk: openai.AsyncOpenAI, number: int) -> str:
        chunks = await sdk.chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": f"[slow 0.01] {number}"}], stream=True
        )
        return "".join([chunk.choices[0].delta.content or "" async for chunk in chunks])

    async with openai.AsyncOpenAI(base_url=f"{service.url}/v1", api_key="unused") as sdk:
        said = await asyncio.gather(*(one(sdk, number) for number in range(20)))
    assert said == [f"echo: [slow 0.01] {number}" for number in range(20)]
    ended = await asyncio.to_thread(service.wait, batch)
    assert ended["request_counts"] == {"total": 100, "completed": 100, "failed": 0}
