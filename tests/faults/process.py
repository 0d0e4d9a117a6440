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

import psutil

from tests.faults.wire import Wire

PROGRAM = Path(__file__).with_name("launch.py")
START_WITHIN = 180.0
STOP_WITHIN = 60.0


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
        options = ["--port", "0", "--log-json", "--grace", "5", "--upstream-slots", "16", "--upstream", self.upstream]
        command = [sys.executable, str(PROGRAM), "serve", "--parts", self.parts, *options]
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
            self.running.kill()
            self.running.wait(10)
            self.running = None
            self.frozen = False

    def freeze(self) -> None:
        """Let it stand still."""
        if self.running is not None:
            self.running.send_signal(signal.SIGSTOP)
            self.frozen = True

    def thaw(self) -> None:
        """Let it go on."""
        if self.running is not None and self.frozen:
            self.running.send_signal(signal.SIGCONT)
            self.frozen = False

    async def terminate(self) -> int:
        """Tell it to stop as an operator would; return its exit code."""
        running, self.running = self.running, None
        if running is None:
            return 0
        running.send_signal(signal.SIGTERM)
        try:
            return await asyncio.to_thread(running.wait, STOP_WITHIN)
        except subprocess.TimeoutExpired:
            running.kill()
            raise AssertionError(f"{self.name} did not stop within {STOP_WITHIN} s of SIGTERM") from None

    def cut_off(self) -> list[float]:
        """When it gave up what ran since its heartbeat was not confirmed, in seconds of the wall clock."""
        shifted = float(self.env.get("SHIFTED_CLOCK", "0"))
        found = [
            json.loads(line) for line in self.log.read_bytes().splitlines() if b'"event_name": "worker_cut_off"' in line
        ]
        return [datetime.fromisoformat(line["timestamp"]).timestamp() - shifted for line in found]

    async def tasks(self) -> int:
        """How many asyncio tasks it has."""
        assert self.running is not None
        self._tasks.unlink(missing_ok=True)
        self.running.send_signal(signal.SIGUSR2)
        async with asyncio.timeout(20):
            while not self._tasks.exists():
                await asyncio.sleep(0.02)
        return int(self._tasks.read_text())

    def uses(self) -> tuple[int, int, int]:
        """Open file descriptors, threads, and memory in MiB."""
        found = psutil.Process(self.pid)
        return found.num_fds(), found.num_threads(), found.memory_info().rss // 2**20
