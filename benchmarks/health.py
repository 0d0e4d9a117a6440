"""How long `/health` takes while something else goes on: asked by a process of its own, 50 times a second."""

from __future__ import annotations

import subprocess
import sys
import time
from select import select
from statistics import quantiles
from types import TracebackType
from typing import Self

import httpx

EVERY = 0.02


class Health:
    """Asks from the beginning of a block to its end; then `p50` and `p99` are seconds, `worst` too."""

    def __init__(self, url: str) -> None:
        self._command = [sys.executable, "-m", "benchmarks.health", url]
        self.p50 = self.p99 = self.worst = 0.0

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        said, _ = self._process.communicate()
        self.p50, self.p99, self.worst = map(float, said.split())

    def __str__(self) -> str:
        return f"p50 {self.p50 * 1e3:.1f} ms, p99 {self.p99 * 1e3:.1f} ms, worst {self.worst * 1e3:.0f} ms"


def main(url: str) -> None:
    """Ask until standard input ends, then print the median, the 99th percentile and the worst, in seconds."""
    took: list[float] = []
    with httpx.Client(base_url=url, timeout=60, trust_env=False) as http:
        while not select([sys.stdin], [], [], EVERY)[0]:
            began = time.perf_counter()
            http.get("/health").raise_for_status()
            took.append(time.perf_counter() - began)
    of_100 = quantiles(took, n=100)
    print(of_100[49], of_100[98], max(took))


if __name__ == "__main__":
    main(sys.argv[1])
