"""What taking in a line costs: the check while it is uploaded, then validating and planning it into blocks."""

from __future__ import annotations

import resource
import time
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import psutil

from benchmarks import choice
from benchmarks.budgets import note
from benchmarks.dispatch import CHAT, lines
from benchmarks.house import opened, run
from overnight.batches.create import create
from overnight.batches.request import read_create
from overnight.domain import ids
from overnight.domain.limits import MIB, Limits
from overnight.files.upload import receive
from overnight.store import accounts
from overnight.upkeep.deps import Upkeep
from overnight.upkeep.validate import Validate

LINES = 200_000
QUICK_LINES = 50_000


class Spent:
    """CPU of this process and of PostgreSQL, and time, since it was made."""

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder)
        self._began = time.perf_counter()
        self._own = self._mine()
        self._server = self._servers()

    @staticmethod
    def _mine() -> float:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return usage.ru_utime + usage.ru_stime

    def _servers(self) -> float:
        total = 0.0
        for process in psutil.process_iter(["cmdline"]):
            if self._folder in " ".join(process.info["cmdline"] or []):
                for one in [process, *process.children(recursive=True)]:
                    if one.name() == "postgres":
                        times = one.cpu_times()
                        total += times.user + times.system + times.children_user + times.children_system
        return total

    def each(self, count: int) -> tuple[float, float]:
        """Microseconds of this process and of PostgreSQL for each of `count`."""
        own, server = self._mine() - self._own, self._servers() - self._server
        return own / count * 1e6, server / count * 1e6

    def row(self, what: str, count: int, budget: str = "") -> str:
        """A row of the table; `budget` is one for the CPU of both."""
        own, server = self.each(count)
        seconds = time.perf_counter() - self._began
        verdict = note(budget, own + server) if budget else ""
        return f"| {what} | {own:.1f} µs | {server:.1f} µs | {count / seconds:,.0f} | {verdict} |"


async def upload(content: bytes) -> AsyncIterator[bytes]:
    """A multipart body in the pieces in which a server reads it."""
    yield b'--cut\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n--cut\r\n'
    yield b'Content-Disposition: form-data; name="file"; filename="in.jsonl"\r\n\r\n'
    for at in range(0, len(content), 65_536):
        yield content[at : at + 65_536]
    yield b"\r\n--cut--\r\n"


async def measure(count: int, folder: Path) -> None:
    """Take in one file of so many lines and print what each leg cost a line."""
    content = b"\n".join(lines(count)) + b"\n"
    async with opened(folder) as (store, life):
        owner = await accounts.local_owner(store)
        limits = Limits()
        print(f"{count:,} lines of {len(content) / count:,.0f} bytes on average\n")
        print("| leg | this process a line | PostgreSQL a line | lines/s | budget |\n|---|---|---|---|---|")
        spent = Spent(folder)
        file = await receive(store, limits, owner, "multipart/form-data; boundary=cut", upload(content))
        print(spent.row("upload: check, compress, store", count), flush=True)
        del content
        new = read_create(f'{{"input_file_id":"{ids.show(ids.FILE, file.id)}","endpoint":"{CHAT}"}}'.encode())
        await create(store, limits, owner, new)
        spent = Spent(folder)
        while await Validate(Upkeep(store, life, limits)).round():
            pass
        print(spent.row("validate and plan into blocks", count, "validate"), flush=True)
        peak = int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]) * 1024
        print(f"\nPeak memory of this process, the whole input included: {peak / MIB:,.0f} MiB")


if __name__ == "__main__":
    given = choice.parser(__doc__).parse_args()
    run(partial(measure, QUICK_LINES if given.quick else LINES))
