"""Peak memory of the server process and time for one large upload over HTTP."""

from __future__ import annotations

import json
import os
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil

from tests.process import Served, chat

MIB = 2**20


def parts(size: int) -> Iterator[bytes]:
    """A multipart body with a JSONL file of about `size` bytes, made while it is sent."""
    yield b'--cut\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n--cut\r\n'
    yield b'Content-Disposition: form-data; name="file"; filename="big.jsonl"\r\n\r\n'
    text = "Tell me about the sea, the mountains and the people who live between them. " * 12
    sent = line = 0
    while sent < size:
        piece = "".join(json.dumps(chat(f"request-{line + i:09d}", text)) + "\n" for i in range(256)).encode()
        line += 256
        sent += len(piece)
        yield piece
    yield b"\r\n--cut--\r\n"


class Peak:
    """The largest resident size that a process reaches while this is open."""

    def __init__(self, pid: int) -> None:
        self._process = psutil.Process(pid)
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self.bytes = 0

    def __enter__(self) -> Peak:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._done.wait(0.05):
            self.bytes = max(self.bytes, self._process.memory_info().rss)


def main(size: int = int(os.environ.get("BENCH_UPLOAD_BYTES", 1024 * MIB))) -> None:
    """Upload a file of `size` bytes to a fresh server and print what that took."""
    with tempfile.TemporaryDirectory() as folder, Served(Path(folder), "--upstream", "http://127.0.0.1:9/v1") as served:
        assert served.process is not None
        process = psutil.Process(served.process.pid)
        at_rest = process.memory_info().rss
        before = process.cpu_times()
        began = time.perf_counter()
        with Peak(process.pid) as peak, httpx.Client(timeout=600) as http:
            headers = {"content-type": "multipart/form-data; boundary=cut"}
            answer = http.post(f"{served.url}/v1/files", content=parts(size), headers=headers)
            answer.raise_for_status()
        seconds = time.perf_counter() - began
        after = process.cpu_times()
        lines = answer.json()["lines"]
        cpu = after.user + after.system - before.user - before.system
        memory = f"{at_rest / MIB:.0f} MiB at rest, {peak.bytes / MIB:.0f} MiB at most"
        print("| upload | time | server CPU a line | server memory |\n|---|---|---|---|")
        print(f"| {size / MIB:,.0f} MiB, {lines:,} lines | {seconds:.1f} s | {cpu / lines * 1e6:.1f} µs | {memory} |")


if __name__ == "__main__":
    main()
