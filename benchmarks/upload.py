"""One large file over HTTP, from its upload until its requests run: time, CPU and peak memory of the server."""

from __future__ import annotations

import json
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil

from benchmarks import choice
from benchmarks.budgets import column, note
from benchmarks.health import Health
from benchmarks.mock import Mock
from tests.process import Served, chat

MIB = 2**20
BYTES = 1_024 * MIB
QUICK_BYTES = 64 * MIB


def parts(size: int) -> Iterator[bytes]:
    """A multipart body with a JSONL file of about `size` bytes, made while it is sent."""
    yield b'--cut\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n--cut\r\n'
    yield b'Content-Disposition: form-data; name="file"; filename="big.jsonl"\r\n\r\n'
    text = "Tell me about the sea, the mountains and the people who live between them. " * 12
    sent = line = 0
    while sent < size:
        piece = "".join(
            json.dumps(chat(f"request-{line + i:09d}", text, model="mock")) + "\n" for i in range(256)
        ).encode()
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


def until_running(http: httpx.Client, url: str, file: str, mock: Mock) -> None:
    """Make a batch of the file, and wait until the model server has seen the first request of it."""
    seen = mock.stats().requests
    made = {"input_file_id": file, "endpoint": "/v1/chat/completions", "completion_window": "24h"}
    batch = http.post(f"{url}/v1/batches", json=made).raise_for_status().json()["id"]
    while mock.stats().requests == seen:
        now = http.get(f"{url}/v1/batches/{batch}").json()
        assert now["status"] in ("validating", "in_progress"), now["errors"] or now["error"]
        time.sleep(0.1)
    http.post(f"{url}/v1/batches/{batch}/cancel").raise_for_status()


def main(size: int) -> None:
    """Upload a file of `size` bytes to a fresh server, run it, and print what that took."""
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
        Mock(2_000, 6_000) as mock,
        Served(Path(folder), "--upstream", mock.url, "--max-intake-capacity", "10000000") as served,
        httpx.Client(timeout=600) as http,
    ):
        assert served.process is not None
        process = psutil.Process(served.process.pid)
        at_rest = process.memory_info().rss
        before = process.cpu_times()
        began = time.perf_counter()
        with Peak(process.pid) as peak:
            headers = {"content-type": "multipart/form-data; boundary=cut"}
            with Health(served.url) as health:
                answer = http.post(f"{served.url}/v1/files", content=parts(size), headers=headers).raise_for_status()
            uploaded = time.perf_counter() - began
            until_running(http, served.url, answer.json()["id"], mock)
            running = time.perf_counter() - began
        after = process.cpu_times()
        lines = answer.json()["lines"]
        cpu = after.user + after.system - before.user - before.system
        memory = f"{at_rest / MIB:.0f} MiB at rest, {peak.bytes / MIB:.0f} MiB at most"
        print("| file | uploaded | first request | server CPU a line | server memory | `/health` meanwhile | budget |")
        print("|---|---|---|---|---|---|---|")
        verdicts = [note("big memory", peak.bytes / MIB), note("health", health.p99 * 1e3)]
        if size >= BYTES:
            verdicts.insert(0, note("big", running))
        print(
            f"| {size / MIB:,.0f} MiB, {lines:,} lines | {uploaded:.1f} s | {running:.1f} s "
            f"| {cpu / lines * 1e6:.1f} µs | {memory} | {health} | {column(verdicts)} |"
        )


if __name__ == "__main__":
    given = choice.parser(__doc__).parse_args()
    main(QUICK_BYTES if given.quick else BYTES)
