"""What a page of results costs, over HTTP: finished, half done and untouched batches whose blocks are reordered."""

from __future__ import annotations

import random
import statistics
import time
from functools import partial
from pathlib import Path

import httpx

from benchmarks import choice
from benchmarks.budgets import note
from benchmarks.dispatch import CHAT, lines
from benchmarks.house import opened, run, well
from benchmarks.validate import upload
from overnight.api.app import Deps, create_app
from overnight.api.listen import listening
from overnight.batches.create import create
from overnight.batches.request import read_create
from overnight.batches.shape import BatchView
from overnight.domain import ids, result
from overnight.domain.limits import Limits
from overnight.files.upload import receive
from overnight.loops import Bell
from overnight.store import accounts, answers, leases
from overnight.store.answers import OUTPUT, Answer
from overnight.store.leases import Wanted
from overnight.store.life import Life
from overnight.store.pool import Store
from overnight.upkeep.deps import Upkeep
from overnight.upkeep.seal import Seal
from overnight.upkeep.validate import Validate

LINES = 200_000
QUICK_LINES = 20_000
PAGES = 200
FLUSH = 700


class Rig:
    """A batch, and what answers its requests as a worker would: in the order of its blocks, a flush at a time."""

    def __init__(self, store: Store, life: Life, batch: BatchView, url: str, count: int) -> None:
        self.store, self.life, self.batch, self.url, self.count = store, life, batch, url, count
        self.groups = 0
        chance = random.Random(1)
        words = [f"{chance.getrandbits(40):x}" for _ in range(4_000)]
        self.texts = [" ".join(chance.choices(words, k=90)).encode() for _ in range(2_000)]

    async def answer(self, most: int) -> int:
        """Lease up to `most` blocks, write their requests down and answer them; how many there were."""
        wanted = Wanted(models=None, other_models=(), most=most, of_each=most)
        async with self.store.session() as session:
            blocks, _ = await leases.lease(session, self.life.no, wanted)
            numbers = []
            for block in blocks:
                self.groups += 1
                given = (self.batch.no, self.life.no, self.groups, [block.seq], block.lines)
                await session.connection.execute("INSERT INTO attempt VALUES ($1, $2, $3, $4, $5)", *given)
                numbers += block.lines
            for at in range(0, len(numbers), FLUSH):
                found = [self.of_line(line) for line in numbers[at : at + FLUSH]]
                await answers.record(session, self.life.no, [(self.batch.no, found)])
            done = [(block.batch.no, block.seq, True) for block in blocks]
            await leases.end_leases(session, self.life.no, done)
        return len(blocks)

    def of_line(self, line: int) -> Answer:
        body = b'{"choices":[{"message":{"role":"assistant","content":"%b"}}]}' % self.texts[line % len(self.texts)]
        text = result.answered(self.batch.id, line, f"request-{line}", "req_1", 200, body)
        return Answer(line, text, OUTPUT, tries=1, status=200)

    async def measure(self, what: str, limit: int = 100) -> None:
        """Ask for pages anywhere in the batch, one after the other, and print what they take."""
        times = await self.pages(limit)
        p95 = statistics.quantiles(times, n=20)[-1]
        p50 = statistics.median(times)
        verdict = note("page", p50) if limit == 100 else ""
        print(f"| {what}, {limit} a page | {p50:.1f} ms | {p95:.1f} ms | {verdict} |", flush=True)

    async def pages(self, limit: int = 100) -> list[float]:
        """The milliseconds that pages anywhere in the batch take."""
        times, chance = [], random.Random(2)
        async with httpx.AsyncClient(base_url=self.url, trust_env=False) as http:
            for _ in range(PAGES):
                after = ids.of_request(self.batch.id, chance.randrange(self.count - limit - 1))
                began = time.perf_counter()
                answer = await http.get(
                    f"/v1/batches/{self.batch.public_id}/results", params={"limit": limit, "after": after}
                )
                times.append((time.perf_counter() - began) * 1e3)
                assert len(answer.json()["data"]) == limit, answer.text[:500]
        return times


async def measure(count: int, folder: Path) -> None:
    """Take in a batch of so many requests and answer it bit by bit."""
    async with opened(folder) as (store, life):
        owner, limits = await accounts.local_owner(store), Limits()
        upkeep = Upkeep(store, life, limits)
        batch = await take_in(upkeep, owner, count)
        deps = Deps(store, limits, owner, health=well, bell=Bell())
        async with listening(create_app(deps), "127.0.0.1", 0) as http:
            rig = Rig(store, life, batch, http.url, count)
            print(f"{count:,} requests\n\n| batch | p50 | p95 | budget |\n|---|---|---|---|")
            await rig.measure("nothing answered")
            blocks = count // 256
            await rig.answer(blocks // 2)
            wanted = Wanted(models=None, other_models=(), most=100, of_each=100)
            async with store.session() as session:
                held, _ = await leases.lease(session, life.no, wanted)
                await session.connection.execute("ANALYZE")
            await rig.measure("half answered, 100 blocks leased")
            async with store.session() as session:
                await leases.end_leases(session, life.no, [(b.batch.no, b.seq, False) for b in held])
            await rig.answer(2 * blocks)
            while await Seal(upkeep).round():
                pass
            await rig.measure("finished")
            await rig.measure("finished", 1000)
        for table in ("roll", "block", "segment", "answer"):
            async with store.session() as session:
                size = await session.connection.fetchval(
                    "SELECT sum(pg_total_relation_size(inhrelid)) FROM pg_inherits WHERE inhparent = $1::regclass",
                    table,
                )
            print(f"{table}: {size / count:.1f} bytes a request")


async def take_in(upkeep: Upkeep, owner: int, count: int) -> BatchView:
    """Upload a file and let it be checked."""
    content = b"\n".join(lines(count)) + b"\n"
    body = upload(content)
    file = await receive(upkeep.store, upkeep.limits, owner, "multipart/form-data; boundary=cut", body)
    new = read_create(f'{{"input_file_id":"{ids.show(ids.FILE, file.id)}","endpoint":"{CHAT}"}}'.encode())
    batch = await create(upkeep.store, upkeep.limits, owner, new)
    while await Validate(upkeep).round():
        pass
    return batch


if __name__ == "__main__":
    given = choice.parser(__doc__).parse_args()
    run(partial(measure, QUICK_LINES if given.quick else LINES))
