"""Measures how requests get through: as a batch, and by a plain loop that asks the same model server directly."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import msgspec

from overnight.client import AsyncClient
from overnight.client.errors import ApiError, OvernightError
from overnight.domain.errors import Unusable
from overnight.domain.states import FINAL
from overnight.domain.targets import TARGETS
from overnight.upstreams.call import Endpoint, Reply
from overnight.upstreams.http import Pool

CHAT = "/v1/chat/completions"
WORDS = ("river", "stone", "light", "bread", "paper", "water", "green", "house", "night", "table", "music", "small")
NUMBERS = 10**12

LONGEST_ANSWER = 3_600.0
SHORTEST_LOOK, LONGEST_LOOK = 0.02, 0.5
CLEANED_WITHIN = 60.0
"""Seconds that what runs of a batch may take to end before the batch is left behind."""

Times = Callable[[str], Awaitable[list[float]]]
"""Tells of a batch how long each of its requests took, in seconds; nothing where that is not known."""


Cpu = Callable[[], Awaitable[float | None]]


@dataclass(frozen=True, slots=True)
class Work:
    """Requests to one endpoint, as the bodies that a server is sent."""

    url: str
    bodies: Sequence[bytes]


@dataclass(frozen=True, slots=True)
class Ran:
    """What became of some work: `seconds` in all, `took` by each request, where that is known."""

    seconds: float
    requests: int
    failed: int
    tokens: int
    took: Sequence[float]
    cpu_seconds: float | None = None


@dataclass(slots=True)
class Side:
    """One way to ask, and what it came to in each round."""

    name: str
    rounds: list[Ran] = field(default_factory=list)

    @property
    def requests_per_second(self) -> list[float]:
        return [ran.requests / ran.seconds for ran in self.rounds]

    @property
    def tokens_per_second(self) -> list[float]:
        return [ran.tokens / ran.seconds for ran in self.rounds]

    @property
    def failed(self) -> int:
        return sum(ran.failed for ran in self.rounds)

    def percentile(self, percent: int) -> float | None:
        """Seconds within which so many per cent of the requests were answered; None where that is not known."""
        took = [seconds for ran in self.rounds for seconds in ran.took]
        if len(took) < 2:
            return took[0] if took else None
        return quantiles(took, n=100, method="inclusive")[percent - 1]

    @property
    def cpu_seconds_per_request(self) -> float | None:
        known = [ran for ran in self.rounds if ran.cpu_seconds is not None]
        return sum(ran.cpu_seconds or 0 for ran in known) / sum(ran.requests for ran in known) if known else None


def ratio(batch: Side, loop: Side) -> float:
    """What a batch gets through in a second against the loop, in tokens if there are any: the median of the rounds."""
    ours, theirs = batch.tokens_per_second, loop.tokens_per_second
    if not all(theirs):
        ours, theirs = batch.requests_per_second, loop.requests_per_second
    return median(b / a for b, a in zip(ours, theirs, strict=True))


def made_up(url: str, model: str, words: int, tokens: int, more: dict[str, Any]) -> Iterator[bytes]:
    """Bodies without end, all with prompts and answers of one length, each beginning with a number of its own.

    No prompt comes twice, so that none is found in a cache that another one filled.
    """
    draw = random.Random()  # noqa: S311 - for prompts, not for secrets
    while True:
        text = f"{draw.randrange(NUMBERS):012d} {' '.join(draw.choices(WORDS, k=words))}"
        if url == CHAT:
            said: dict[str, Any] = {"messages": [{"role": "user", "content": text}], "max_tokens": tokens, **more}
        elif TARGETS[url].name == "completions":
            said = {"prompt": text, "max_tokens": tokens, **more}
        else:
            said = {"input": text}
        yield json.dumps({"model": model, **said}).encode()


class Loop:
    """Asks a server directly: as many calls at once as it has slots, each followed by the next."""

    def __init__(self, base_url: str, api_key: str | None, slots: int) -> None:
        self.slots = slots
        self._pool = Pool(Endpoint(base_url, api_key), most_connections=slots)

    async def run(self, work: Work) -> Ran:
        """Have all of it answered. Raises Unusable where nothing is."""
        left = iter(work.bodies)
        took: list[float] = []
        tokens = 0
        refused = ""

        async def slot() -> None:
            nonlocal tokens, refused
            for body in left:
                reply = await self._pool.ask("POST", work.url.removeprefix("/v1"), body, LONGEST_ANSWER)
                if isinstance(reply, Reply) and reply.status == 200:
                    took.append(reply.seconds)
                    tokens += _tokens_of(reply.body)
                elif isinstance(reply, Reply):
                    refused = f"it answered {reply.status}: {reply.body[:300].decode(errors='replace')}"
                else:
                    refused = reply.message

        began = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for _ in range(self.slots):
                group.create_task(slot())
        if not took:
            raise Unusable(f"The model server was asked directly and answered nothing: {refused}")
        failed = len(work.bodies) - len(took)
        return Ran(time.perf_counter() - began, len(took), failed, tokens, took)

    async def close(self) -> None:
        """Close the connections."""
        await self._pool.close()


def _tokens_of(reply: bytes) -> int:
    try:
        usage = msgspec.json.decode(reply).get("usage") or {}
    except (msgspec.DecodeError, AttributeError):
        return 0
    return int(usage.get("completion_tokens") or usage.get("prompt_tokens") or 0)


class Batches:
    """Asks through a server of Overnight, a batch at a time, and leaves nothing of them there.

    `cpu` tells the seconds of processor time that Overnight has used so far, or None. A server that `goes_away`
    after the measurement needs no cleaning.
    """

    def __init__(
        self,
        client: AsyncClient,
        scratch: Path,
        *,
        goes_away: bool = False,
        times: Times | None = None,
        cpu: Cpu | None = None,
    ) -> None:
        self._client = client
        self._goes_away = goes_away
        self._file = scratch / "requests.jsonl"
        self._times = times
        self._cpu = cpu

    async def run(self, work: Work) -> Ran:
        """Upload, create, wait until the last answer is stored. Raises Unusable where nothing is answered."""
        await asyncio.to_thread(_write_lines, self._file, work)
        cpu, began = await self._cpu() if self._cpu else None, time.perf_counter()
        stored = await self._client.upload_file(self._file)
        batch: dict[str, Any] = {}
        try:
            batch = await self._client.create_batch(stored["id"], work.url)
            batch = await self._ended(batch["id"])
            seconds = time.perf_counter() - began
            cpu_then = await self._cpu() if self._cpu else None
            count, usage = batch["request_counts"], batch["usage"]
            if not count["completed"]:
                raise Unusable(_why(batch))
            took = await self._times(batch["id"]) if self._times else []
        finally:
            if not self._goes_away:
                await self._remove(stored["id"], batch.get("id"))
        used = None if cpu is None or cpu_then is None else cpu_then - cpu
        tokens = usage["output_tokens"] or usage["input_tokens"]
        return Ran(seconds, count["completed"], count["total"] - count["completed"], tokens, took, used)

    async def _ended(self, batch_id: str) -> dict[str, Any]:
        """Wait for the end: rarely looked for at first, so that looking costs little, and exactly at the end."""
        began = time.perf_counter()
        while True:
            batch = await self._client.get_batch(batch_id)
            if batch["status"] in FINAL:
                return batch
            count = batch["request_counts"]
            ended = count["completed"] + count["failed"]
            passed = time.perf_counter() - began
            left = passed * (count["total"] - ended) / ended if ended else LONGEST_LOOK
            await asyncio.sleep(min(max(left / 4, SHORTEST_LOOK), LONGEST_LOOK))

    async def _remove(self, file_id: str, batch_id: str | None) -> None:
        """Remove a batch, which may still run when a measurement is broken off, and its file."""
        try:
            if batch_id is not None:
                await self._client.cancel_batch(batch_id)
                async with asyncio.timeout(CLEANED_WITHIN):
                    await self._ended(batch_id)
                await self._client.delete_batch(batch_id)
            await self._client.delete_file(file_id)
        except (ApiError, TimeoutError) as e:
            left = f"overnight delete {batch_id}" if batch_id else f"overnight files delete {file_id}"
            raise OvernightError(f"The measurement could not be cleaned away ({e}). Do so by: {left}") from None


def _write_lines(file: Path, work: Work) -> None:
    with file.open("wb") as lines:
        for no, body in enumerate(work.bodies):
            head = json.dumps({"custom_id": f"bench-{no}", "method": "POST", "url": work.url})[:-1]
            lines.write(head.encode() + b', "body": ' + body + b"}\n")


def _why(batch: dict[str, Any]) -> str:
    reasons = [batch["error"] or {}, *((batch["errors"] or {}).get("data") or [])]
    why = next((reason["message"] for reason in reasons if reason.get("message")), "nothing says why")
    return f"The batch ended {batch['status']} and no request of it was answered: {why}"
