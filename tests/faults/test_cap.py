"""The cap of a model over real processes that join, are killed, freeze and come back, as its server sees it.

So are changes of it while they run.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from pathlib import Path

from overnight.store import settings
from overnight.store.pool import Store
from tests.scripted_upstream import completion
from tests.worker.rig import add_batch, names, request, results, value, values

CAP = 6
REQUESTS = 3_000


class Recorder:
    """A model server that knows at every moment how many requests it has of each process.

    A process is told apart by the first part of its path. A request ends when it is answered, or when its connection
    is closed: a server that works for somebody who is gone notices that.
    """

    def __init__(self) -> None:
        self.open: Counter[str] = Counter()
        self.most = 0
        self.moment = 0.1
        """Seconds that a request takes."""
        self.arrived: Counter[str] = Counter()
        self.held: dict[str, asyncio.Event] = {}
        self.changed = asyncio.Event()
        self.url = ""

    @property
    def total(self) -> int:
        return sum(self.open.values())

    async def until(self, is_so: Callable[[], bool], what: str) -> None:
        """Wait until something is so."""
        try:
            async with asyncio.timeout(60):
                while not is_so():
                    self.changed.clear()
                    await self.changed.wait()
        except TimeoutError:
            raise AssertionError(f"{what}: {dict(self.open)} are open, {dict(self.arrived)} arrived") from None

    def count(self, process: str, change: int) -> None:
        self.open[process] += change
        self.most = max(self.most, self.total)
        self.changed.set()

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await self._answer(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        method, path, _ = head.split(" ", 2)
        process = path.split("/")[1]
        body = b'{"object":"list","data":[{"id":"m","object":"model"}]}'
        if method == "POST":
            length = next(line for line in head.split("\r\n") if line.lower().startswith("content-length"))
            asked = json.loads(await reader.readexactly(int(length.split(":")[1])))
            self.arrived[process] += 1
            self.count(process, 1)
            try:
                if not await self._work(process, reader):
                    return False
            finally:
                self.count(process, -1)
            body = completion(asked["messages"][-1]["content"])
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n")
        writer.write(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
        await writer.drain()
        return True

    async def _work(self, process: str, reader: asyncio.StreamReader) -> bool:
        """Take a moment, or longer while the process is held; False when the caller went away."""
        held = self.held.get(process)
        working = asyncio.ensure_future(held.wait() if held is not None else asyncio.sleep(self.moment))
        gone = asyncio.ensure_future(reader.read(1))
        try:
            await asyncio.wait([working, gone], return_when=asyncio.FIRST_COMPLETED)
            return not gone.done()
        finally:
            working.cancel()
            gone.cancel()
            await asyncio.gather(working, gone, return_exceptions=True)


@asynccontextmanager
async def recording() -> AsyncIterator[Recorder]:
    recorder = Recorder()
    server = await asyncio.start_server(recorder.talk, "127.0.0.1", 0)
    recorder.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield recorder
    finally:
        server.close()


@contextmanager
def process(name: str, database: str, recorder: Recorder, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """One process that runs requests; killed at the end if nothing else ended it."""
    program = Path(__file__).with_name("capped.py")
    command = [sys.executable, str(program), database, f"{recorder.url}/{name}/v1", str(folder / name), str(CAP)]
    with (folder / f"{name}.log").open("wb") as log:
        running = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            yield running
        finally:
            running.kill()
            running.wait(60)


async def dead(store: Store, count: int) -> None:
    """Wait until so many workers were declared dead."""
    async with asyncio.timeout(60):
        while len(await values(store, "SELECT no FROM worker WHERE dead_at IS NOT NULL")) < count:
            await asyncio.sleep(0.1)


async def test_the_cap_holds_through_joining_killing_freezing_and_coming_back(
    store: Store, store_url: str, tmp_path: Path
) -> None:
    batch = await add_batch(store, [request(f"r{i}") for i in range(REQUESTS)], of_each=10)
    async with recording() as seen:
        with process("a", store_url, seen, tmp_path) as a, process("b", store_url, seen, tmp_path) as b:
            await seen.until(lambda: seen.total == CAP and seen.open["a"] == seen.open["b"] == 3, "two share the cap")
            with process("c", store_url, seen, tmp_path):
                await seen.until(lambda: seen.total == CAP and set(seen.open.values()) == {2}, "three share it")

                a.kill()
                await seen.until(lambda: seen.open["a"] == 0, "the killed one is gone")
                await dead(store, 1)
                await seen.until(lambda: seen.open["b"] == seen.open["c"] == 3, "two use what it had")

                seen.held["b"] = asyncio.Event()
                arrived = seen.arrived["b"]
                await seen.until(lambda: seen.arrived["b"] >= arrived + 3, "three of it take for ever")
                os.kill(b.pid, signal.SIGSTOP)
                await dead(store, 2)
                answered = seen.arrived["c"]
                await seen.until(lambda: seen.arrived["c"] >= answered + 20, "the other one goes on")
                assert seen.open["b"] == 3
                os.kill(b.pid, signal.SIGCONT)
                await seen.until(
                    lambda: seen.open["b"] == 0 or seen.arrived["b"] > arrived + 3, "it gives up its calls"
                )
                seen.held.pop("b").set()
                await seen.until(lambda: seen.total == CAP, "the cap is used again")
                seen.moment = 0.0
                async with asyncio.timeout(60):
                    while await value(store, "SELECT completed FROM batch") < REQUESTS:
                        await asyncio.sleep(0.2)
        assert seen.most == CAP
    assert (await results(store, batch)).keys() == names(REQUESTS)


async def granted(store: Store, most: int) -> None:
    """Wait until all processes together have so many slots; no more run."""
    async with asyncio.timeout(60):
        while (await value(store, "SELECT sum(granted) FROM model_grant") or 0) > most:
            await asyncio.sleep(0.05)


async def beat_again(store: Store) -> None:
    """Wait until every process has done its rounds some more times."""
    last = "SELECT min(at) FROM beat JOIN worker ON no = worker WHERE dead_at IS NULL"
    begun = await value(store, "SELECT now()")
    async with asyncio.timeout(60):
        while await value(store, last) < begun + timedelta(seconds=1):
            await asyncio.sleep(0.1)


async def test_all_processes_follow_a_changed_cap_down_to_nothing_and_up_again(
    store: Store, store_url: str, tmp_path: Path
) -> None:
    await add_batch(store, [request(f"r{i}") for i in range(2_000)], of_each=10)
    async with recording() as seen:
        with process("a", store_url, seen, tmp_path), process("b", store_url, seen, tmp_path):
            await seen.until(lambda: seen.total == CAP and seen.open["a"] == seen.open["b"] == 3, "two share the cap")

            await settings.change(store, {"BATCH_MODEL_CONCURRENCY": 2})
            await granted(store, 2)
            seen.most = seen.total
            before = seen.arrived.copy()
            await seen.until(lambda: min((seen.arrived - before)[p] for p in "ab") >= 5, "both go on below it")
            assert seen.most <= 2

            await settings.change(store, {"BATCH_MODEL_CONCURRENCY": 0})
            await granted(store, 0)
            await seen.until(lambda: seen.total == 0, "nothing runs")
            arrived = seen.arrived.total()
            await beat_again(store)
            assert seen.arrived.total() == arrived

            seen.most = 0
            await settings.change(store, {"BATCH_MODEL_CONCURRENCY": 4})
            await seen.until(lambda: seen.open["a"] == seen.open["b"] == 2, "both go on")
            assert seen.most == 4
            await settings.change(store, {"BATCH_MODEL_CONCURRENCY": CAP})
            await seen.until(lambda: seen.open["a"] == seen.open["b"] == 3, "they have what they had")
            assert seen.most == CAP
