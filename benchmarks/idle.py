"""What a deployment without work costs: CPU of all its processes, and the statements that its PostgreSQL gets.

The deployment is `overnight serve` as it comes, with one model server. The statements are those in PostgreSQL's log.
"""

from __future__ import annotations

import asyncio
import re
import tempfile
import time
from collections import Counter
from pathlib import Path

import asyncpg
import psutil

from benchmarks import choice
from benchmarks.budgets import note
from benchmarks.mock import Mock
from overnight.store.embedded import ensure
from tests.process import Served

SETTLE_SECONDS = 10.0
"""After the start, before anything is counted."""
SECONDS = 120.0
QUICK_SECONDS = 15.0
EXECUTED = re.compile(r"LOG:  duration: [\d.]+ ms  (?:execute [^:]*|statement): (.*(?:\n\t.*)*)")
"""One line for each statement, however it was sent; what it took to parse and to bind it has lines of its own."""
COMMENT = re.compile(r"--.*|/\*.*?\*/")


def family(served: Served) -> list[psutil.Process]:
    """All processes of the deployment: Overnight's, the keeper and PostgreSQL's own."""
    assert served.process is not None
    found = []
    for process in psutil.process_iter(["cmdline", "pid"]):
        line = " ".join(process.info["cmdline"] or [])
        if process.info["pid"] == served.process.pid or str(served.folder / "postgres") in line:
            found += [process, *process.children(recursive=True)]
    return list({process.pid: process for process in found}.values())


def cpu_of(processes: list[psutil.Process]) -> dict[str, float]:
    """Seconds of CPU so far, by what the processes are."""
    used = {"Overnight": 0.0, "PostgreSQL": 0.0}
    for process in processes:
        times = process.cpu_times()
        # Workers of PostgreSQL that come and go are counted by the process that started them.
        name = "PostgreSQL" if "postgres" in process.name() else "Overnight"
        used[name] += times.user + times.system + times.children_user + times.children_system
    return used


async def measure(folder: Path, seconds: float) -> None:
    """Leave a deployment alone and print what it did."""
    with Mock() as mock, Served(folder, "--upstream", mock.url) as served:
        # Inside: who ends waits for its PostgreSQL to end, which it does after its last user.
        async with await ensure(folder / "postgres") as database:
            admin = await asyncpg.connect(database.dsn)
            await admin.execute("ALTER SYSTEM SET log_min_duration_statement = 0")
            await admin.execute("SELECT pg_reload_conf()")
            await asyncio.sleep(SETTLE_SECONDS)
            log = database.folder.server_log
            processes, begins, began = family(served), log.stat().st_size, time.monotonic()
            before = cpu_of(processes)
            await asyncio.sleep(seconds)
            after, took = cpu_of(processes), time.monotonic() - began
            said = log.read_bytes()[begins:].decode(errors="replace")
            await admin.close()
    statements = Counter(" ".join(COMMENT.sub("", text).split())[:100] for text in EXECUTED.findall(said))
    show(took, {name: (after[name] - before[name]) / took * 100 for name in before}, statements)


def show(seconds: float, percent: dict[str, float], statements: Counter[str]) -> None:
    """Print both tables."""
    rate = statements.total() / seconds
    shown = ", ".join(f"{name} {part:.2f} %" for name, part in percent.items())
    print(f"{seconds:.0f} s without work\n\n| what | measured | budget |\n|---|---|---|")
    print(f"| CPU of a core: {shown} | {sum(percent.values()):.2f} % | {note('idle', sum(percent.values()))} |")
    print(f"| statements a second | {rate:.2f} | {note('statements', rate)} |")
    print("\n| statement | a second |\n|---|---|")
    for text, count in statements.most_common(12):
        print(f"| `{text}` | {count / seconds:.2f} |")


if __name__ == "__main__":
    given = choice.parser(__doc__).parse_args()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        asyncio.run(measure(Path(scratch) / "data", QUICK_SECONDS if given.quick else SECONDS))
