"""One `overnight serve` of the fault runs: started, killed, frozen, stopped and started again."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

from tests.faults.spans import Spans
from tests.faults.wire import Wire

PROGRAM = Path(__file__).with_name("launch.py")
START_WITHIN = 180.0
STOP_WITHIN = 60.0
GRACE = 5.0
"""Seconds in which what runs may end, once it is told to stop."""
GAVE_UP = ("worker_cut_off", "worker_was_dead")
"""What it says when it gives up what it runs: others may take that over soon, or did."""


class Process:
    """A process of the deployment, under one name through all its starts."""

    def __init__(self, name: str, parts: str, folder: Path, wire: Wire, env: Mapping[str, str]) -> None:
        self.name = name
        self.parts = parts
        self.folder = folder / name
        self.wire = wire
        self._tasks = folder / f"{name}.tasks"
        self.env = {**os.environ, **env, "OVERNIGHT_FAULTS_TASKS": str(self._tasks)}
        self.upstream = ""
        self.url = ""
        self.running: subprocess.Popen[bytes] | None = None
        self.frozen = False
        self.still = Spans()
        """When it stood still."""
        self.began = Spans()
        """When it was started: what was said before it listens it does not hear."""
        self.killed_at: list[float] = []
        self.stops: list[tuple[float, float]] = []
        """When it was told to stop, and when it had."""
        self.log = folder / f"{name}.log"

    @property
    def pid(self) -> int:
        """Its process id; 0 while it does not run."""
        return 0 if self.running is None else self.running.pid

    @property
    def runs(self) -> bool:
        """Whether it runs requests."""
        return "worker" in self.parts

    async def start(self) -> None:
        """Start it and return when it has started; where the database is away it is tried again for a while."""
        deadline = time.monotonic() + START_WITHIN
        while time.monotonic() < deadline:
            begins = self.log.stat().st_size if self.log.exists() else 0
            self._launch()
            if await self._has_started(begins, deadline):
                return
        raise AssertionError(f"{self.name} did not start:\n{self.log.read_text()[-3000:]}")

    def _launch(self) -> None:
        database = f"postgresql://overnight@127.0.0.1:{self.wire.port}/overnight?sslmode=disable"
        options = [
            "--port",
            "0",
            "--log-json",
            "--grace",
            str(GRACE),
            "--upstream-slots",
            "16",
            "--upstream",
            self.upstream,
        ]
        command = [sys.executable, str(PROGRAM), "serve", "--parts", self.parts, *options]
        self.began.note()
        with self.log.open("ab") as log:
            self.running = subprocess.Popen(
                [*command, "--database-url", database, "--data-dir", str(self.folder)],
                stdout=log,
                stderr=log,
                env=self.env,
            )

    async def _has_started(self, begins: int, deadline: float) -> bool:
        running = self.running
        assert running is not None
        while time.monotonic() < deadline and running.poll() is None:
            for line in self.log.read_bytes()[begins:].splitlines():
                if b'"event_name": "started"' in line:
                    self.url = json.loads(line)["url"]
                    return True
            await asyncio.sleep(0.05)
        self.kill()
        return False

    def kill(self) -> None:
        """End it without a chance to tidy up."""
        if self.running is not None:
            self.killed_at.append(time.time())
            self.running.kill()
            self.running.wait(10)
            self.still.end()
            self.running = None
            self.frozen = False

    def freeze(self) -> None:
        """Let it stand still."""
        if self.running is not None:
            self.running.send_signal(signal.SIGSTOP)
            self.frozen = True
            self.still.begin()

    def thaw(self) -> None:
        """Let it go on."""
        if self.running is not None and self.frozen:
            self.running.send_signal(signal.SIGCONT)
            self.frozen = False
            self.still.end()

    async def terminate(self) -> int:
        """Tell it to stop as an operator would; return its exit code."""
        running, self.running = self.running, None
        if running is None:
            return 0
        told_at = time.time()
        running.send_signal(signal.SIGTERM)
        try:
            return await asyncio.to_thread(running.wait, STOP_WITHIN)
        except subprocess.TimeoutExpired:
            running.kill()
            raise AssertionError(f"{self.name} did not stop within {STOP_WITHIN} s of SIGTERM") from None
        finally:
            self.stops.append((told_at, time.time()))

    def gave_up(self) -> dict[str, list[float]]:
        """When it gave up what ran, by why, in seconds of the wall clock."""
        shifted = float(self.env.get("SHIFTED_CLOCK", "0"))
        found: dict[str, list[float]] = {why: [] for why in GAVE_UP}
        for line in self.log.read_bytes().splitlines():
            if any(why.encode() in line for why in GAVE_UP) and line.startswith(b"{"):
                said = json.loads(line)
                at = datetime.fromisoformat(said["timestamp"]).timestamp() - shifted
                found.setdefault(said["event_name"], []).append(at)
        return found

    async def tasks(self) -> int:
        """How many asyncio tasks it has."""
        assert self.running is not None
        self._tasks.unlink(missing_ok=True)
        self.running.send_signal(signal.SIGUSR2)
        async with asyncio.timeout(20):
            while not self._tasks.exists():
                await asyncio.sleep(0.02)
        return int(self._tasks.read_text())
