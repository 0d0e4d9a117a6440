"""How many tokens an upstream says it read and wrote."""

from __future__ import annotations

from overnight.domain.outcome import NO_USAGE, Usage

# Beyond this a figure is a mistake; it also keeps every count within a column of four bytes.
_MOST_TOKENS = 2**31 - 1


def read_usage(body: object) -> Usage:
    """The `usage` of a decoded reply, nothing where there is none; values of a wrong type count as absent.

    Knows the names of chat completions, completions and embeddings (`prompt_tokens`, `completion_tokens`), of
    Responses and Messages (`input_tokens`, `output_tokens`), and Responses' details. Messages counts cached input
    beside `input_tokens`, not in it, so it is added here.
    """
    usage = body.get("usage") if type(body) is dict else None
    if type(usage) is not dict or not usage:
        return NO_USAGE
    get = usage.get
    given, output = get("prompt_tokens"), get("completion_tokens")
    if len(usage) == 3 and type(given) is int and type(output) is int and "total_tokens" in usage:
        # The most frequent kind by far: nothing but the three numbers of chat completions.
        return Usage(_count(given), 0, _count(output), 0)
    read = _count(get("cache_read_input_tokens"))
    given = _count(given) or _count(get("input_tokens"))
    given = min(given + read + _count(get("cache_creation_input_tokens")), _MOST_TOKENS)
    output = _count(output) or _count(get("output_tokens"))
    cached = read or _detail(get("prompt_tokens_details") or get("input_tokens_details"), "cached_tokens")
    reasoning = _detail(get("completion_tokens_details") or get("output_tokens_details"), "reasoning_tokens")
    return Usage(given, min(cached, given), output, min(reasoning, output))


def _detail(details: object, name: str) -> int:
    return _count(details.get(name)) if type(details) is dict else 0


def _count(value: object) -> int:
    # This runs several times for every reply, and most often there is nothing.
    if value is None:
        return 0
    if type(value) is float and value.is_integer():
        value = int(value)
    return value if type(value) is int and 0 <= value <= _MOST_TOKENS else 0
