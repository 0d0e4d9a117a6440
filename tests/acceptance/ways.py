"""The same calls made in three ways: with `curl`, with our own client, and with the official SDK."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar, cast

import httpx
import openai

import overnight
from tests.process import ENDED

Body = dict[str, Any]
CHAT = "/v1/chat/completions"


E = TypeVar("E", bound=Exception)


class Refused(NamedTuple):
    """An error as a way shows it."""

    status: int
    code: str | None
    message: str
    retry_after: str | None


class Way(Protocol):
    """One way to talk to a server."""

    def upload(self, path: Path) -> Body: ...
    def create(self, file: str, endpoint: str = CHAT, **defaults: Any) -> Body: ...
    def get(self, batch: str) -> Body: ...
    def cancel(self, batch: str) -> Body: ...
    def content(self, file: str) -> bytes: ...
    def pool(self) -> Body: ...
    def refusal(self, call: Callable[[], object]) -> Refused:
        """The error that a call of this way must end with."""
        ...

    def close(self) -> None: ...


def caught(kind: type[E], call: Callable[[], object]) -> E:
    """The error that a call must end with."""
    try:
        call()
    except kind as error:
        return error
    raise AssertionError("it was not refused")


class Answer(NamedTuple):
    """What came over HTTP; names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Unanswered(Exception):
    """The answer to a plain call was an error."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer)
        self.answer = answer


class Plain(ABC):
    """The routes as they are, without any library of ours or of others."""

    def __init__(self, url: str) -> None:
        self.url = url

    @abstractmethod
    def call(self, path: str, body: Body | None = None, file: Path | None = None, *, method: str = "GET") -> Answer:
        """One call; `body` goes as JSON, `file` as the form that uploads a file for a batch."""

    def upload(self, path: Path) -> Body:
        return self._json(self.call("/v1/files", file=path, method="POST"))

    def create(self, file: str, endpoint: str = CHAT, **defaults: Any) -> Body:
        body = {"input_file_id": file, "endpoint": endpoint, **defaults}
        return self._json(self.call("/v1/batches", body, method="POST"))

    def get(self, batch: str) -> Body:
        return self._json(self.call(f"/v1/batches/{batch}"))

    def cancel(self, batch: str) -> Body:
        return self._json(self.call(f"/v1/batches/{batch}/cancel", method="POST"))

    def content(self, file: str) -> bytes:
        return self._good(self.call(f"/v1/files/{file}/content")).body

    def pool(self) -> Body:
        return self._json(self.call("/v1/pool/status"))

    def refusal(self, call: Callable[[], object]) -> Refused:
        answer = caught(Unanswered, call).answer
        error = json.loads(answer.body)["error"]
        assert error.keys() == {"message", "type", "param", "code"}, "every error has one shape"
        return Refused(answer.status, error["code"], error["message"], answer.headers.get("retry-after"))

    def close(self) -> None:
        return

    def _json(self, answer: Answer) -> Body:
        return cast("Body", json.loads(self._good(answer).body))

    def _good(self, answer: Answer) -> Answer:
        if answer.status != 200:
            raise Unanswered(answer)
        return answer


class Curl(Plain):
    """The command of that name, with the options that people use."""

    def call(self, path: str, body: Body | None = None, file: Path | None = None, *, method: str = "GET") -> Answer:
        # Whatever the machine has set up for curl stays out: its file of defaults and its proxy.
        command = ["curl", "-q", "--noproxy", "*", "-sS", "-D", "-", f"{self.url}{path}"]
        if method != "GET":
            command += ["-X", method]
        if body is not None:
            command += ["-H", "Content-Type: application/json", "-d", json.dumps(body)]
        if file is not None:
            command += ["-F", f"file=@{file}", "-F", "purpose=batch"]
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "answer"
            done = subprocess.run([*command, "-o", str(out)], capture_output=True, timeout=60)
            assert done.returncode == 0, done.stderr.decode()
            # Before the head of the answer there may be one that says to go on with a large body.
            head, *lines = done.stdout.decode().rstrip().split("\r\n\r\n")[-1].splitlines()
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
            return Answer(int(head.split()[1]), headers, out.read_bytes() if out.exists() else b"")


class Http(Plain):
    """The same calls by a library, for machines on which there is no curl."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._http = httpx.Client(base_url=url, timeout=60, trust_env=False)

    def call(self, path: str, body: Body | None = None, file: Path | None = None, *, method: str = "GET") -> Answer:
        given: Body = {"json": body}
        if file is not None:
            given = {"files": {"file": file.read_bytes()}, "data": {"purpose": "batch"}}
        answer = self._http.request(method, path, **given)
        return Answer(answer.status_code, answer.headers, answer.content)

    def close(self) -> None:
        self._http.close()


class Ours:
    """The client that comes with the product, which here does not wait between its retries."""

    def __init__(self, url: str) -> None:
        self.client = overnight.Client(url)
        self._waits: list[float] = []
        self.client._calls._edge.sleep = self._sleep  # type: ignore[method-assign]

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

    def pool(self) -> Body:
        return self.client.pool_status()

    def refusal(self, call: Callable[[], object]) -> Refused:
        self._waits.clear()
        error = caught(overnight.client.ApiError, call)
        wait = f"{self._waits[0]:g}" if self._waits else None
        return Refused(error.status, error.code, error.message, wait)

    def close(self) -> None:
        self.client.close()

    async def _sleep(self, seconds: float) -> None:
        self._waits.append(seconds)


class Official:
    """The official SDK, which knows nothing of the additional fields; without its retries, which would wait."""

    def __init__(self, url: str) -> None:
        self.sdk = openai.OpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=0)

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

    def pool(self) -> Body:
        return cast("Body", self.sdk.get("/pool/status", cast_to=object))

    def refusal(self, call: Callable[[], object]) -> Refused:
        error = caught(openai.APIStatusError, call)
        return Refused(
            error.status_code,
            error.code,
            cast("Body", error.body)["message"],
            error.response.headers.get("retry-after"),
        )

    def close(self) -> None:
        self.sdk.close()


PLAIN = Curl if shutil.which("curl") else Http
"""`curl` where the machine has it; without it the same routes are called all the same."""
WAYS: dict[str, Callable[[str], Way]] = {
    "curl": PLAIN,
    "client": Ours,
    "sdk": Official,
}


def ended(way: Way, batch: Body, within: float = 180) -> Body:
    """The batch when it has ended, looking as a caller does."""
    deadline = time.monotonic() + within
    while batch["status"] not in ENDED:
        assert time.monotonic() < deadline, batch
        time.sleep(0.05)
        batch = way.get(batch["id"])
    return batch
