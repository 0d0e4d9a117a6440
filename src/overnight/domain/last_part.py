"""The last requests of a batch: the longest starts first, so that none runs on alone when all others are done."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from overnight.domain.body import OUTPUT_LIMITS

R = TypeVar("R")


class _Body(msgspec.Struct, gc=False):
    max_completion_tokens: Any = None
    max_tokens: Any = None


class _Line(msgspec.Struct, gc=False):
    body: _Body


_read_line = msgspec.json.Decoder(_Line).decode


def is_last_part(untaken: int, free: int, slots: int) -> bool:
    """Whether the order of the `untaken` requests decides when the last one ends; nothing comes after them.

    Where all of them fit into the `free` of the `slots`, they start together and there is nothing to decide.
    """
    return free < untaken <= 2 * slots


def longest_first(requests: Iterable[R], outputs: Sequence[float]) -> list[R]:
    """Order requests by the most that each may be answered with; among equals the order stays."""
    pairs = sorted(zip(outputs, requests, strict=True), key=lambda pair: -pair[0])
    return [request for _, request in pairs]


def longest_output(request: bytes, url: str, defaults: Mapping[str, Any]) -> float:
    """The most tokens that a stored request may be answered with; infinite where nothing limits them."""
    if not OUTPUT_LIMITS[url]:
        return 0.0
    body = _read_line(request).body
    own = [getattr(body, name) for name in OUTPUT_LIMITS[url]]
    limits = [limit for limit in own if limit is not None] or [defaults.get("max_decoding_length")]
    return min([float(limit) if isinstance(limit, int) else float("inf") for limit in limits])
