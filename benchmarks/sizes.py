"""What calls cost on batches of 1,000, 100,000 and 1,000,000 requests, over HTTP, and how that grows."""

from __future__ import annotations

import asyncio
import random
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import httpx

from benchmarks import choice
from benchmarks.budgets import note
from benchmarks.dispatch import CHAT, lines
from benchmarks.house import opened, run, well
from benchmarks.results import Rig
from benchmarks.validate import Spent
from overnight.api.app import Deps, create_app
from overnight.api.listen import listening
from overnight.batches.create import create
from overnight.batches.request import read_create
from overnight.batches.shape import BatchView
from overnight.domain import ids
from overnight.domain.limits import MIB, Limits
from overnight.files.upload import receive
from overnight.loops import Bell
from overnight.store import accounts
from overnight.store.pool import Store
from overnight.upkeep.deps import Upkeep
from overnight.upkeep.seal import Seal
from overnight.upkeep.validate import Validate

SIZES = {"1000": 1_000, "100000": 100_000, "1000000": 1_000_000}
QUICK_SIZES = {"1000": 1_000, "20000": 20_000}
BUDGETS = {
    "create of 2 requests, ms": "create",
    "get, ms": "get",
    "cancel, ms": "cancel",
    "results page, nothing answered, ms": "page",
    "results page, finished, ms": "page",
    "64 KiB range, ms": "range",
    "download, MB a second of this process's CPU": "download",
}
"""Of which budget a row is, at the largest size."""
CALLS = 100
RANGE = 65_536
DOWNLOAD = """
import sys, urllib.request
with urllib.request.urlopen(sys.argv[1]) as answer:
    while answer.read(1 << 20):
        pass
"""


async def body(count: int) -> AsyncIterator[bytes]:
    """A multipart upload of so many lines, made while it is read."""
    yield b'--cut\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n--cut\r\n'
    yield b'Content-Disposition: form-data; name="file"; filename="in.jsonl"\r\n\r\n'
    some = [line.partition(b'"method"')[2] for line in lines(2_000)]
    for first in range(0, count, 100):
        numbers = range(first, min(first + 100, count))
        yield b"".join(b'{"custom_id":"request-%d","method"%b\n' % (n, some[n * 7919 % 2_000]) for n in numbers)
    yield b"\r\n--cut--\r\n"


class Calls:
    """Calls on one batch, one after the other."""

    def __init__(self, http: httpx.AsyncClient, store: Store, batch: BatchView) -> None:
        self.http, self.store, self.batch = http, store, batch
        self.path = f"/v1/batches/{batch.public_id}"

    async def p50(self, method: str, path: str, *, json: object = None, headers: dict[str, str] | None = None) -> float:
        """The median of the milliseconds that a call takes."""
        times = []
        for _ in range(CALLS):
            began = time.perf_counter()
            answer = await self.http.request(method, path, json=json, headers=headers)
            times.append((time.perf_counter() - began) * 1e3)
            assert answer.status_code in (200, 206), answer.text[:500]
        return statistics.median(times)

    async def cancel(self) -> float:
        """Cancelling the batch, which is set going again between two calls."""
        times = []
        for _ in range(CALLS):
            began = time.perf_counter()
            answer = await self.http.post(f"{self.path}/cancel")
            times.append((time.perf_counter() - began) * 1e3)
            assert answer.json()["cancelling_at"], answer.text[:500]
            async with self.store.session() as session:
                await session.connection.execute(
                    "UPDATE batch SET status = 'in_progress', ends_as = NULL, cancelling_at = NULL WHERE no = $1",
                    self.batch.no,
                )
        return statistics.median(times)

    async def ranges(self, file: str, size: int) -> float:
        """64 KiB anywhere in a result file."""
        times, chance = [], random.Random(4)
        for _ in range(CALLS):
            at = chance.randrange(max(1, size - RANGE))
            began = time.perf_counter()
            answer = await self.http.get(f"/v1/files/{file}/content", headers={"range": f"bytes={at}-{at + RANGE - 1}"})
            times.append((time.perf_counter() - began) * 1e3)
            assert answer.status_code == 206
        return statistics.median(times)


async def take_in(upkeep: Upkeep, owner: int, count: int, folder: Path, found: dict[str, float]) -> BatchView:
    """Upload a file of so many requests and let it be checked."""
    store, limits = upkeep.store, upkeep.limits
    spent = Spent(folder)
    file = await receive(store, limits, owner, "multipart/form-data; boundary=cut", body(count))
    new = read_create(f'{{"input_file_id":"{ids.show(ids.FILE, file.id)}","endpoint":"{CHAT}"}}'.encode())
    batch = await create(store, limits, owner, new)
    while await Validate(upkeep).round():
        pass
    found["upload and validate, CPU µs a request"] = sum(spent.each(count))
    async with store.session() as session:
        await session.connection.execute("ANALYZE")
    return batch


async def one_size(upkeep: Upkeep, owner: int, url: str, count: int, folder: Path) -> dict[str, float]:
    """Take a batch of `count` requests from upload to deletion; what each step took."""
    store, found = upkeep.store, dict[str, float]()
    batch = await take_in(upkeep, owner, count, folder, found)
    async with httpx.AsyncClient(base_url=url, trust_env=False, timeout=600) as http:
        calls = Calls(http, store, batch)
        request = {"custom_id": "one", "body": {"model": "mock", "messages": [{"role": "user", "content": "hi"}]}}
        two = {"requests": [request, {**request, "custom_id": "two"}]}
        found["create of 2 requests, ms"] = await calls.p50("POST", "/v1/batches", json=two)
        async with store.session() as session:
            await session.connection.execute("DELETE FROM block WHERE batch <> $1", batch.no)
            await session.connection.execute("DELETE FROM batch WHERE no <> $1 AND ended_at IS NULL", batch.no)
        found["get, ms"] = await calls.p50("GET", calls.path)
        found["list of 20, ms"] = await calls.p50("GET", "/v1/batches")
        found["cancel, ms"] = await calls.cancel()
        rig = Rig(store, upkeep.life, batch, url, count)
        found["results page, nothing answered, ms"] = statistics.median(await rig.pages())
        spent = Spent(folder)
        while await rig.answer(64):
            pass
        while await Seal(upkeep).round():
            pass
        found["record and seal, CPU µs a request"] = sum(spent.each(count))
        async with store.session() as session:
            await session.connection.execute("ANALYZE")
        found["results page, finished, ms"] = statistics.median(await rig.pages())
        output = (await http.get(calls.path)).json()["output_file_id"]
        size = (await http.get(f"/v1/files/{output}")).json()["bytes"]
        found["64 KiB range, ms"] = await calls.ranges(output, size)
        spent = Spent(folder)
        command = [sys.executable, "-c", DOWNLOAD, f"{url}/v1/files/{output}/content"]
        assert await asyncio.to_thread(subprocess.call, command) == 0
        found["download, MB a second of this process's CPU"] = size / spent.each(1)[0]
        began = time.perf_counter()
        assert (await http.delete(calls.path)).status_code == 200
        found["delete, ms"] = (time.perf_counter() - began) * 1e3
    found["peak memory of this process, MiB"] = (
        int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]) * 1024 / MIB
    )
    return found


async def measure(sizes: list[int], folder: Path) -> None:
    """Print one column a size and the ratio of the largest to the smallest."""
    async with opened(folder) as (store, life):
        owner, limits = await accounts.local_owner(store), Limits(intake=10_000_000)
        upkeep = Upkeep(store, life, limits)
        deps = Deps(store, limits, owner, health=well, bell=Bell())
        async with listening(create_app(deps), "127.0.0.1", 0) as http:
            columns = [await one_size(upkeep, owner, http.url, size, folder) for size in sizes]
    print("| | " + " | ".join(f"{size:,}" for size in sizes) + " | growth | budget |")
    print("|---" * (len(sizes) + 3) + "|")
    for what in columns[0]:
        values = [column[what] for column in columns]
        shown = " | ".join(f"{value:,.1f}" for value in values)
        verdict = note(BUDGETS[what], values[-1]) if what in BUDGETS else ""
        print(f"| {what} | {shown} | {values[-1] / values[0]:.2f} × | {verdict} |")


if __name__ == "__main__":
    given = choice.parser(__doc__, SIZES).parse_args()
    sizes = QUICK_SIZES if given.quick and not given.only else choice.rows_of(given, SIZES)
    run(partial(measure, list(sizes.values())))
