"""A mock upstream for benchmarks and fault tests: compiled on the spot, or in Python where there is no compiler."""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO

HERE = Path(__file__).parent
SOURCE = HERE / "mock_upstream.c"
FALLBACK = HERE / "mock_upstream.py"


@dataclass(frozen=True, slots=True)
class Stats:
    """What the mock counted since it started. `in_flight_seconds` is the integral of requests in flight."""

    requests: int
    failures: int
    in_flight: int
    max_in_flight: int
    connections: int
    max_connections: int
    cpu_seconds: float
    in_flight_seconds: float
    uptime_seconds: float


def compile_mock() -> Path | None:
    """The compiled mock, from the cache where the source has not changed; None without a compiler or epoll."""
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if compiler is None or sys.platform != "linux":
        return None
    digest = hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:16]
    folder = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "overnight-benchmarks"
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / f"mock_upstream-{digest}"
    if program.exists():
        return program
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        fresh = Path(scratch) / "mock"
        built = subprocess.run(
            [compiler, "-O2", "-o", str(fresh), str(SOURCE)], capture_output=True, text=True, check=False
        )
        if built.returncode != 0:
            print(f"The mock could not be compiled, so the Python one runs instead:\n{built.stderr}", file=sys.stderr)
            return None
        fresh.replace(program)
    return program


class Mock:
    """A running mock upstream; use it as a context manager.

    Every POST below `/v1/` is answered after a delay drawn evenly from `min_ms` to `max_ms` with about
    `reply_bytes` of valid JSON, the share `error_rate` of them with a 500.
    """

    def __init__(
        self,
        min_ms: int = 0,
        max_ms: int = 0,
        *,
        reply_bytes: int = 1024,
        error_rate: float = 0.0,
        seed: int = 1,
        port: int = 0,
        python: bool = False,
    ) -> None:
        self._settings = [str(port), str(min_ms), str(max_ms), str(reply_bytes), str(error_rate), str(seed)]
        self._python = python
        self._process: subprocess.Popen[str] | None = None
        self.port = 0

    @property
    def url(self) -> str:
        """The base URL, as a route would name it."""
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def pid(self) -> int:
        """The process id of the running mock."""
        return self._running().pid

    def start(self) -> None:
        """Start the mock and wait until it listens."""
        program = None if self._python else compile_mock()
        command = [str(program)] if program else [sys.executable, str(FALLBACK)]
        # The mock ends with its standard input, so it cannot outlive us however we end.
        self._process = subprocess.Popen(
            [*command, *self._settings], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        said = _pipe(self._process.stdout).readline()
        if not said.startswith("PORT "):
            self.stop()
            raise RuntimeError(f"the mock did not start; it said {said!r}")
        self.port = int(said.split()[1])

    def stats(self) -> Stats:
        """What the mock counted so far."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request("GET", "/stats")
            return Stats(**json.loads(connection.getresponse().read()))
        finally:
            connection.close()

    def stop(self) -> None:
        """End the mock; connections to it break."""
        process, self._process = self._running(), None
        process.terminate()
        process.wait()
        _pipe(process.stdin).close()
        _pipe(process.stdout).close()

    def _running(self) -> subprocess.Popen[str]:
        if self._process is None:
            raise RuntimeError("the mock is not running")
        return self._process

    def __enter__(self) -> Mock:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self.stop()


def _pipe(pipe: IO[str] | None) -> IO[str]:
    assert pipe is not None
    return pipe
