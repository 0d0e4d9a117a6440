"""How many tokens an upstream says it read and wrote."""

from __future__ import annotations

from typing import cast

from overnight.domain.outcome import NO_USAGE, Usage

# Beyond this a figure is a mistake; it also keeps every count within a column of four bytes.
_MOST_TOKENS = 2**31 - 1


def read_usage(body: object) -> Usage:
    """The `usage` of a decoded reply, nothing where there is none; values of a wrong type count as absent.

    Knows the names of chat completions, completions and embeddings (`prompt_tokens`, `completion_tokens`), of
    Responses and Messages (`input_tokens`, `output_tokens`), and Responses' details. Messages counts cached input
    beside `input_tokens`, not in it, so it is added here.
    """
    usage = _part(body, "usage")
    if not usage:
        return NO_USAGE
    read = _count(usage, "cache_read_input_tokens")
    given = _first(usage, "prompt_tokens", "input_tokens")
    given = min(given + read + _count(usage, "cache_creation_input_tokens"), _MOST_TOKENS)
    cached = read or _first(
        _part(usage, "prompt_tokens_details") or _part(usage, "input_tokens_details"), "cached_tokens"
    )
    output = _first(usage, "completion_tokens", "output_tokens")
    details = _part(usage, "completion_tokens_details") or _part(usage, "output_tokens_details")
    reasoning = _count(details, "reasoning_tokens")
    return Usage(input=given, cached=min(cached, given), output=output, reasoning=min(reasoning, output))


def _part(value: object, name: str) -> dict[str, object]:
    part = cast("dict[str, object]", value).get(name) if isinstance(value, dict) else None
    return part if isinstance(part, dict) else {}


def _first(usage: dict[str, object], *names: str) -> int:
    return next((count for name in names if (count := _count(usage, name))), 0)


def _count(usage: dict[str, object], name: str) -> int:
    value = usage.get(name)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MOST_TOKENS:
        return 0
    return value
