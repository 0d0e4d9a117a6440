"""CPU and memory of one call through the upstream pool, at 64, 1,000 and 10,000 in flight.

The mock upstream runs beside it and is not counted.
"""

from __future__ import annotations

import asyncio
import gc
import resource
import statistics
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import msgspec
import uvloop

from benchmarks import choice
from benchmarks.mock import Mock
from overnight.upstreams.http import Broken, Call, Endpoint, Pool, Reply

REQUEST = (
    b'{"model":"mock","temperature":0,"max_tokens":256,"messages":[{"role":"system","content":"You answer briefly."},'
    b'{"role":"user","content":"' + b"Say what the night is for. " * 32 + b'"}]}'
)


@dataclass(frozen=True, slots=True)
class Setting:
    """How many calls at once, how many in all, and the delays of the mock in ms."""

    in_flight: int
    calls: int
    min_ms: int
    max_ms: int


@dataclass(frozen=True, slots=True)
class Figures:
    """What one run came to."""

    cpu_us: float
    mock_us: float
    calls_per_second: float
    kib_per_call: float
    peak_mib: float
    most_at_once: int
    broken: int


SETTINGS = {
    "64": Setting(64, 60_000, 0, 3),
    "1000": Setting(1_000, 60_000, 50, 150),
    "10000": Setting(10_000, 80_000, 200, 600),
}


class Load:
    """Keeps a number of calls in flight until all are made."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self.left = 0
        self.running = 0
        self.broken = 0
        self.done = asyncio.Event()

    async def run(self, calls: int, in_flight: int) -> None:
        """Make `calls` calls, `in_flight` at once."""
        self.left = calls
        self.done.clear()
        for _ in range(min(calls, in_flight)):
            self.start()
        await self.done.wait()

    def start(self) -> None:
        """Start one call."""
        self.left -= 1
        self.running += 1
        self._pool.send(Call("/chat/completions", REQUEST, 60.0, None, self.end))

    def end(self, call: Call, came: Reply | Broken) -> None:
        """Count what came and start the next call."""
        self.running -= 1
        if isinstance(came, Broken) or came.status != 200 or len(came.body) < 100:
            self.broken += 1
        if self.left:
            self.start()
        elif not self.running:
            self.done.set()


def resident_bytes() -> int:
    """Resident memory of this process now (Linux)."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


async def measure(setting: Setting, mock: Mock) -> Figures:
    """One run: every connection is opened by a first call that is not counted."""
    pool = Pool(Endpoint(mock.url), idle_seconds=60.0, environment={})
    load = Load(pool)
    before = resident_bytes()
    await load.run(setting.in_flight, setting.in_flight)
    grown = resident_bytes() - before
    mock_before, cpu, began = mock.stats(), time.process_time(), time.monotonic()
    await load.run(setting.calls, setting.in_flight)
    cpu, took = time.process_time() - cpu, time.monotonic() - began
    mock_after = mock.stats()
    await pool.close()
    return Figures(
        cpu_us=cpu / setting.calls * 1e6,
        mock_us=(mock_after.cpu_seconds - mock_before.cpu_seconds) / setting.calls * 1e6,
        calls_per_second=setting.calls / took,
        kib_per_call=grown / 1024 / setting.in_flight,
        peak_mib=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        most_at_once=mock_after.max_in_flight,
        broken=load.broken,
    )


def run_here(setting: Setting) -> Figures:
    """One run in this process, with garbage collection as a worker would set it."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    gc.freeze()
    gc.set_threshold(100_000, 50, 1_000)
    with Mock(setting.min_ms, setting.max_ms) as mock:
        return uvloop.run(measure(setting, mock))


def run_apart(name: str) -> Figures:
    """One run in a process of its own, so that its memory is its own."""
    ran = subprocess.run(
        [sys.executable, "-m", "benchmarks.upstream_pool", "--setting", name],
        capture_output=True,
        check=True,
    )
    return msgspec.json.decode(ran.stdout, type=Figures)


def main() -> None:
    """Print the medians as a table."""
    parser = choice.parser(__doc__, SETTINGS, rounds=3)
    parser.add_argument("--setting", help="of one run in this very process; prints JSON")
    chosen = parser.parse_args()
    if chosen.setting is not None:
        print(msgspec.json.encode(run_here(SETTINGS[chosen.setting])).decode())
        return
    print("| in flight | mock delay ms | CPU µs a call | mock µs | calls/s | KiB a call in flight | peak MiB |")
    print("|---|---|---|---|---|---|---|")
    for name, setting in choice.rows_of(chosen, SETTINGS).items():
        runs = [asdict(run_apart(name)) for _ in range(choice.rounds_of(chosen))]
        seen = {figure: statistics.median(run[figure] for run in runs) for figure in runs[0]}
        broken = sum(run["broken"] for run in runs)
        note = f" ({broken} broken)" if broken else ""
        print(
            f"| {setting.in_flight:,}{note} (held {seen['most_at_once']:,.0f}) | {setting.min_ms}–{setting.max_ms} "
            f"| {seen['cpu_us']:.1f} | {seen['mock_us']:.1f} | {seen['calls_per_second']:,.0f} "
            f"| {seen['kib_per_call']:.1f} | {seen['peak_mib']:.0f} |"
        )


if __name__ == "__main__":
    main()
