"""How busy a model server says it is, where it publishes that for Prometheus."""

from __future__ import annotations

import re
from math import isfinite

from overnight.domain.concurrency.state import Signals
from overnight.monotonic import monotonic
from overnight.upstreams.http import Endpoint, Pool, Reply

ASK_WITHIN = 2.0
"""Seconds; a server that takes longer is too busy to be asked."""
SILENT_FOR = 300.0
"""Seconds for which a server that does not tell is not asked again."""
UNWELL_FOR = 15.0
MOST_BYTES = 4 * 1024 * 1024

_NAMES = {
    b"vllm:num_requests_running": "running",
    b"vllm:num_requests_waiting": "waiting",
    b"vllm:kv_cache_usage_perc": "memory",
    b"vllm:gpu_cache_usage_perc": "memory",
    b"sglang:num_running_reqs": "running",
    b"sglang:num_queue_reqs": "waiting",
    b"sglang:token_usage": "memory",
    b"llamacpp:requests_processing": "running",
    b"llamacpp:requests_deferred": "waiting",
}
_LINE = re.compile(
    rb"^(" + b"|".join(map(re.escape, _NAMES)) + rb")(?:\{.*\})?[ \t]+([-+0-9.eE]{1,32})\b", re.MULTILINE
)


def read_signals(body: bytes) -> Signals | None:
    """What a page in Prometheus' text format says; None where it says nothing of running and waiting requests.

    Several models or engines behind one server are added up; of their caches the fullest counts.
    """
    found: dict[str, list[float]] = {}
    for name, text in _LINE.findall(body):
        try:
            value = float(text)
        except ValueError:
            continue
        if isfinite(value) and value >= 0:
            found.setdefault(_NAMES[name], []).append(value)
    if "running" not in found or "waiting" not in found:
        return None
    memory = max(found["memory"]) if "memory" in found else None
    return Signals(sum(found["running"]), sum(found["waiting"]), memory)


class Inquiry:
    """Asks one server, by a connection of its own, and leaves one alone that does not tell.

    The page lies at the root of the server, beside the `/v1` of its API.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        root = Endpoint(endpoint.base_url.removesuffix("/v1"), endpoint.api_key, endpoint.ca_file)
        self.pool = Pool(root, most_connections=1, connect_timeout=ASK_WITHIN, most_reply_bytes=lambda: MOST_BYTES)
        self._not_before = 0.0

    async def ask(self) -> Signals | None:
        """What the server says now; None where it does not, or is not to be asked now."""
        if monotonic() < self._not_before:
            return None
        came = await self.pool.ask("GET", "/metrics", timeout=ASK_WITHIN)
        if not isinstance(came, Reply) or came.status == 429 or came.status >= 500:
            self._not_before = monotonic() + (SILENT_FOR if _never(came) else UNWELL_FOR)
            return None
        told = read_signals(came.body) if came.status == 200 else None
        if told is None:
            self._not_before = monotonic() + SILENT_FOR
        return told


def _never(came: object) -> bool:
    """llama.cpp answers 501 where it was started without its metrics."""
    return isinstance(came, Reply) and came.status == 501
