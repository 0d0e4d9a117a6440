"""A batch of the fault runs as its caller knows it: what was handed over, and what was asked of it since."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from typing import Any

from tests.faults.recorder import MODEL, Recorder

ENDPOINT = "/v1/chat/completions"


@dataclass
class Job:
    """Moments are seconds of the wall clock; None: that was not asked for."""

    tag: str
    custom_ids: list[str]
    source: str
    """`file` or `direct`."""
    batch: str | None = None
    """The public id; None while no call that was answered gave one."""
    in_doubt: float | None = None
    """When its caller hung up without an answer: there may be a batch, or there may be one in a moment."""
    bad: int | None = None
    """The place of a request that nothing can run: its batch is refused with all the others."""
    refused: bool = False
    """Its create was answered with an error: nothing of it may ever be sent."""
    cancelled_at: float | None = None
    deleted_at: float | None = None
    expires_at: float | None = None
    pauses: list[tuple[float, float]] = field(default_factory=list)
    """When each pause was acknowledged, and when its end was asked for."""

    @property
    def names(self) -> list[str]:
        """How its requests appear to the model server, in their order."""
        return [f"{self.tag}/{custom_id}" for custom_id in self.custom_ids]

    @property
    def stopped_at(self) -> float | None:
        """From when on nothing new may start."""
        known = [at for at in (self.cancelled_at, self.deleted_at, self.expires_at) if at is not None]
        return min(known, default=None)

    def lines(self) -> list[dict[str, Any]]:
        """Its requests as lines of an input file."""
        return [
            {
                "custom_id": custom_id,
                "method": "POST",
                "url": ENDPOINT,
                "body": {
                    "model": MODEL if place != self.bad else "no-such-model",
                    "messages": [{"role": "user", "content": f"{self.tag}/{custom_id}"}],
                },
            }
            for place, custom_id in enumerate(self.custom_ids)
        ]

    def file(self) -> bytes:
        return "".join(json.dumps(line) + "\n" for line in self.lines()).encode()

    def create(self, input_file_id: str | None = None) -> dict[str, Any]:
        """The body of its create call; `tag` in its metadata tells it apart."""
        metadata = {"tag": self.tag}
        if input_file_id is None:
            requests = [{"custom_id": line["custom_id"], "body": line["body"]} for line in self.lines()]
            return {"requests": requests, "metadata": metadata}
        return {
            "input_file_id": input_file_id,
            "endpoint": ENDPOINT,
            "completion_window": "24h",
            "metadata": metadata,
        }


def plan(tag: str, requests: int, chance: random.Random, recorder: Recorder, source: str | None = None) -> Job:
    """A batch of some requests, of which a few fail once and a few always."""
    job = Job(tag, [f"r-{i}" for i in range(requests)], source or chance.choice(["file", "file", "direct"]))
    recorder.once |= set(chance.sample(job.names, requests // 40))
    recorder.refused |= set(chance.sample(job.names, requests // 40))
    return job
