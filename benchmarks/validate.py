"""What taking in a line costs: the check while it is uploaded, then validating and planning it into blocks."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import AsyncIterator
from pathlib import Path

import psutil

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

LINES = int(os.environ.get("BENCH_LINES", "200000"))


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

    def row(self, what: str, count: int) -> str:
        own, server = self.each(count)
        seconds = time.perf_counter() - self._began
        return f"| {what} | {own:.1f} µs | {server:.1f} µs | {count / seconds:,.0f} |"


async def upload(content: bytes) -> AsyncIterator[bytes]:
    """A multipart body in the pieces in which a server reads it."""
    yield b'--cut\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n--cut\r\n'
    yield b'Content-Disposition: form-data; name="file"; filename="in.jsonl"\r\n\r\n'
    for at in range(0, len(content), 65_536):
        yield content[at : at + 65_536]
    yield b"\r\n--cut--\r\n"


async def measure(folder: Path) -> None:
    """Take in one file and print what each leg cost a line."""
    content = b"\n".join(lines(LINES)) + b"\n"
    async with opened(folder) as (store, life):
        owner = await accounts.local_owner(store)
        limits = Limits()
        print(f"{LINES:,} lines of {len(content) / LINES:,.0f} bytes on average\n")
        print("| leg | this process a line | PostgreSQL a line | lines/s |\n|---|---|---|---|")
        spent = Spent(folder)
        file = await receive(store, limits, owner, "multipart/form-data; boundary=cut", upload(content))
        print(spent.row("upload: check, compress, store", LINES), flush=True)
        del content
        new = read_create(f'{{"input_file_id":"{ids.show(ids.FILE, file.id)}","endpoint":"{CHAT}"}}'.encode())
        await create(store, limits, owner, new)
        spent = Spent(folder)
        while await Validate(Upkeep(store, life, limits)).round():
            pass
        print(spent.row("validate and plan into blocks", LINES), flush=True)
        peak = int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]) * 1024
        print(f"\nPeak memory of this process, the whole input included: {peak / MIB:,.0f} MiB")


if __name__ == "__main__":
    run(measure)
