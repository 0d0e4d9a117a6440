"""The same calls made in three ways: plain HTTP as `curl` would, our own client, and the official SDK."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, cast

import httpx
import openai

import overnight
from tests.process import ENDED

Body = dict[str, Any]
CHAT = "/v1/chat/completions"


class Way(Protocol):
    """One way to talk to a server."""

    def upload(self, path: Path) -> Body: ...
    def create(self, file: str, endpoint: str = CHAT, **defaults: Any) -> Body: ...
    def get(self, batch: str) -> Body: ...
    def cancel(self, batch: str) -> Body: ...
    def content(self, file: str) -> bytes: ...
    def close(self) -> None: ...


class Plain:
    """What the document shows with curl."""

    def __init__(self, url: str) -> None:
        self.http = httpx.Client(base_url=url, timeout=60, trust_env=False)

    def upload(self, path: Path) -> Body:
        with path.open("rb") as file:
            return self._json(self.http.post("/v1/files", files={"file": file}, data={"purpose": "batch"}))

    def create(self, file: str, endpoint: str = CHAT, **defaults: Any) -> Body:
        return self._json(self.http.post("/v1/batches", json={"input_file_id": file, "endpoint": endpoint, **defaults}))

    def get(self, batch: str) -> Body:
        return self._json(self.http.get(f"/v1/batches/{batch}"))

    def cancel(self, batch: str) -> Body:
        return self._json(self.http.post(f"/v1/batches/{batch}/cancel"))

    def content(self, file: str) -> bytes:
        return self.http.get(f"/v1/files/{file}/content").raise_for_status().content

    def close(self) -> None:
        self.http.close()

    def _json(self, response: httpx.Response) -> Body:
        assert response.status_code == 200, response.text
        return cast("Body", response.json())


class Ours:
    """The client that comes with the product."""

    def __init__(self, url: str) -> None:
        self.client = overnight.Client(url)

    def upload(self, path: Path) -> Body:
        return self.client.upload_file(str(path), purpose="batch")

    def create(self, file: str, endpoint: str = CHAT, **defaults: Any) -> Body:
        return self.client.create_batch(input_file_id=file, endpoint=endpoint, **defaults)

    def get(self, batch: str) -> Body:
        return self.client.get_batch(batch)

    def cancel(self, batch: str) -> Body:
        return self.client.cancel_batch(batch)

    def content(self, file: str) -> bytes:
        return self.client.download_file_content(file)

    def close(self) -> None:
        self.client.close()


class Official:
    """The official SDK, which knows nothing of the additional fields."""

    def __init__(self, url: str) -> None:
        self.sdk = openai.OpenAI(base_url=f"{url}/v1", api_key="unused")

    def upload(self, path: Path) -> Body:
        with path.open("rb") as file:
            return self.sdk.files.create(file=file, purpose="batch").to_dict()

    def create(self, file: str, endpoint: str = CHAT, **defaults: Any) -> Body:
        return self.sdk.batches.create(
            input_file_id=file, endpoint=cast("Any", endpoint), completion_window="24h", extra_body=defaults
        ).to_dict()

    def get(self, batch: str) -> Body:
        return self.sdk.batches.retrieve(batch).to_dict()

    def cancel(self, batch: str) -> Body:
        return self.sdk.batches.cancel(batch).to_dict()

    def content(self, file: str) -> bytes:
        return self.sdk.files.content(file).read()

    def close(self) -> None:
        self.sdk.close()


WAYS: dict[str, Callable[[str], Way]] = {"curl": Plain, "client": Ours, "sdk": Official}


def ended(way: Way, batch: Body, within: float = 60) -> Body:
    """The batch when it has ended, looking as a caller does."""
    deadline = time.monotonic() + within
    while batch["status"] not in ENDED:
        assert time.monotonic() < deadline, batch
        time.sleep(0.05)
        batch = way.get(batch["id"])
    return batch
