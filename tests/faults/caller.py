"""Calls the API of a deployment as a patient client does: what met a server that was away is called again."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from typing import Any

import httpx

from tests.faults.job import Job

PATIENCE = 120.0
AGAIN = (408, 429, 500, 502, 503, 507)


class Caller:
    """Speaks to one process, whose address may change as it is started again."""

    def __init__(self, url: Callable[[], str], chance: random.Random) -> None:
        self._url = url
        self._chance = chance

    async def call(self, method: str, path: str, **given: Any) -> httpx.Response:
        """Call until it is answered by anything but "try again"."""
        deadline = time.monotonic() + PATIENCE
        last = ""
        while time.monotonic() < deadline:
            try:
                answer = await self.once(method, path, **given)
            except httpx.TransportError as error:
                last = repr(error)
            else:
                if answer.status_code not in AGAIN:
                    return answer
                last = answer.text
            await asyncio.sleep(self._chance.uniform(0.1, 0.4))
        raise AssertionError(f"{method} {path} was not answered in {PATIENCE:.0f} s: {last}")

    async def once(self, method: str, path: str, **given: Any) -> httpx.Response:
        """Call once; raises httpx.TransportError."""
        # No certificates: to read them takes as long as a hundred calls.
        async with httpx.AsyncClient(base_url=self._url(), timeout=30, verify=False) as http:
            return await http.request(method, path, **given)

    async def get(self, path: str) -> Any:
        """The JSON that a GET answers with."""
        answer = await self.call("GET", path)
        assert answer.status_code == 200, f"GET {path}: {answer.text}"
        return answer.json()

    async def upload(self, job: Job) -> str:
        """Store the input file of a job; return its id."""
        given = {"files": {"file": ("in.jsonl", job.file())}, "data": {"purpose": "batch"}}
        answer = await self.call("POST", "/v1/files", **given)
        assert answer.status_code == 200, answer.text
        return str(answer.json()["id"])

    async def create(self, job: Job) -> None:
        """Hand a job over under a key, so that calling again makes no second batch."""
        file = await self.upload(job) if job.source == "file" else None
        answer = await self.call(
            "POST", "/v1/batches", json=job.create(file), headers={"Idempotency-Key": f"key-{job.tag}"}
        )
        assert answer.status_code == 200, answer.text
        job.batch = answer.json()["id"]

    async def lines(self, file_id: str | None) -> list[bytes]:
        """The lines of a result file; none for None."""
        if file_id is None:
            return []
        answer = await self.call("GET", f"/v1/files/{file_id}/content")
        assert answer.status_code == 200, answer.text
        return answer.content.splitlines(keepends=True)

    async def results(self, batch: str) -> list[dict[str, Any]]:
        """All results of a batch, page by page."""
        found: list[dict[str, Any]] = []
        after = ""
        while True:
            page = await self.get(f"/v1/batches/{batch}/results?limit=400{after}")
            found += page["data"]
            if not page["has_more"]:
                return found
            after = f"&after={page['last_id']}"
