"""Starts `overnight` as users do, in a process of its own, and finds out where it answers."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import asyncpg
import httpx

from overnight.store.cluster import DATABASE, USER
from overnight.store.embedded import is_running
from overnight.store.folder import PORT, Folder

START_WITHIN = 180.0
ENDED = ("completed", "failed", "expired", "cancelled")


class Served:
    """One `overnight serve`; its log goes to a file beside its data."""

    def __init__(self, folder: Path, *options: str, env: dict[str, str] | None = None) -> None:
        self.folder = folder
        self.options = options
        self.env = {**os.environ, **(env or {})}
        self.process: subprocess.Popen[bytes] | None = None
        self.log = folder / "serve.log"
        self.url = ""

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def start(self) -> Self:
        """Start it and return when it answers."""
        command = [
            sys.executable,
            "-m",
            "overnight",
            "serve",
            "--port",
            "0",
            "--log-json",
            "--data-dir",
            str(self.folder),
        ]
        self.folder.mkdir(parents=True, exist_ok=True)
        begins = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("ab") as log:
            self.process = subprocess.Popen([*command, *self.options], stdout=log, stderr=log, env=self.env)
        deadline = time.monotonic() + START_WITHIN
        while time.monotonic() < deadline:
            for line in self.log.read_bytes()[begins:].splitlines():
                if b'"event_name": "started"' in line:
                    self.url = json.loads(line)["url"]
                    return self
            if self.process.poll() is not None:
                break
            time.sleep(0.05)
        raise AssertionError(f"overnight serve did not start:\n{self.log.read_text()[-3000:]}")

    def stop(self, within: float = 180) -> int:
        """Tell it to stop, as an operator would, and return its exit code."""
        if self.process is None:
            return 0
        process, self.process = self.process, None
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        code = process.wait(within)
        deadline = time.monotonic() + within
        while is_running(self.folder / "postgres") and time.monotonic() < deadline:
            time.sleep(0.05)
        return code

    def kill(self) -> None:
        """End it without a chance to tidy up."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(60)
        self.process = None

    def sql(self, statement: str, *given: Any) -> str:
        """Change what no call can in the embedded database, such as when a window closes; says what was done."""

        async def change() -> str:
            host = str(Folder(self.folder / "postgres").read_socket_directory())
            connection = await asyncpg.connect(host=host, port=PORT, user=USER, database=DATABASE)
            try:
                return str(await connection.execute(statement, *given))
            finally:
                await connection.close()

        return asyncio.run(change())

    def get(self, path: str) -> Any:
        """The JSON that a GET answers."""
        with urllib.request.urlopen(f"{self.url}{path}", timeout=60) as answer:
            return json.load(answer)

    def submit(self, lines: list[dict[str, Any]], endpoint: str = "/v1/chat/completions") -> str:
        """Upload requests, make a batch of them, and return its id."""
        content = "".join(json.dumps(line) + "\n" for line in lines).encode()
        with httpx.Client(base_url=self.url, timeout=60) as http:
            file = http.post("/v1/files", files={"file": ("in.jsonl", content)}, data={"purpose": "batch"})
            file.raise_for_status()
            made = {"input_file_id": file.json()["id"], "endpoint": endpoint, "completion_window": "24h"}
            batch = http.post("/v1/batches", json=made)
            batch.raise_for_status()
            return str(batch.json()["id"])

    def wait(self, batch: str, within: float = 180) -> dict[str, Any]:
        """Follow a batch until it has ended, as a client does that waits where it is told to come again (503)."""
        deadline = time.monotonic() + within
        last = ""
        with httpx.Client(base_url=self.url, timeout=60) as http:
            while time.monotonic() < deadline:
                answer = http.get(f"/v1/batches/{batch}")
                last = answer.text
                if answer.status_code == 200 and answer.json()["status"] in ENDED:
                    found: dict[str, Any] = answer.json()
                    return found
                assert answer.status_code in (200, 503), last
                time.sleep(0.1)
        raise AssertionError(f"{batch} has not ended after {within} s: {last}")

    def lines(self, file_id: str | None) -> list[dict[str, Any]]:
        """A result file, parsed; none for None."""
        if file_id is None:
            return []
        with urllib.request.urlopen(f"{self.url}/v1/files/{file_id}/content", timeout=60) as answer:
            return [json.loads(line) for line in answer.read().decode().splitlines()]


def chat(custom_id: str, text: str, **body: Any) -> dict[str, Any]:
    """One line of an input file."""
    message = {"role": "user", "content": text}
    return {
        "custom_id": custom_id,
        "method": "POST",
        "url": "/v1/chat/completions",
        "body": {"model": "test-model", "messages": [message], **body},
    }
