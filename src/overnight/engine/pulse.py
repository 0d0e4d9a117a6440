"""Whether an engine that has requests gets on with them, told by its own counters."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Reading:
    """The work of an engine at one moment."""

    running: float
    """Requests that it works on."""
    done: float
    """A count that rises with every step of work."""


class Pulse:
    """Follows the readings of one life of an engine."""

    def __init__(self, now: float) -> None:
        self._last = Reading(0, -1)
        self._moved_at = now

    def still_for(self, reading: Reading | None, now: float) -> float:
        """Seconds, by the clock of `now`, for which it had requests and did nothing.

        No reading counts as no step: an engine whose own loop hangs does not tell its counters either.
        """
        if reading is not None and (reading.running <= 0 or reading.done != self._last.done):
            self._last = reading
            self._moved_at = now
        return now - self._moved_at


def read_llama_cpp(metrics: str) -> Reading | None:
    """The reading in a page of llama.cpp's metrics."""
    return _read(metrics, ("llamacpp:requests_processing",), ("llamacpp:n_decode_total",))


def read_vllm(metrics: str) -> Reading | None:
    """The reading in a page of vLLM's metrics, over all its engines."""
    done = ("vllm:generation_tokens_total", "vllm:prompt_tokens_total", "vllm:request_success_total")
    return _read(metrics, ("vllm:num_requests_running", "vllm:num_requests_waiting"), done)


def _read(metrics: str, running: Iterable[str], done: Iterable[str]) -> Reading | None:
    found: dict[str, float] = {}
    for line in metrics.splitlines():
        name, _, value = line.rpartition(" ")
        try:
            # A sample is `name{labels} value`; those of several engines are added up.
            found[name.partition("{")[0]] = found.get(name.partition("{")[0], 0.0) + float(value)
        except ValueError:
            continue
    if not any(name in found for name in running):
        return None
    return Reading(sum(found.get(name, 0.0) for name in running), sum(found.get(name, 0.0) for name in done))
