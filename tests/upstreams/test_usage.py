"""Token counts, as the different endpoints name them."""

from __future__ import annotations

import pytest

from overnight.domain.outcome import NO_USAGE, Usage
from overnight.upstreams.usage import read_usage


@pytest.mark.parametrize(
    ("usage", "read"),
    [
        ({"prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 12}, Usage(input=5, output=7)),
        ({"prompt_tokens": 5, "total_tokens": 5}, Usage(input=5)),
        (
            {
                "prompt_tokens": 50,
                "completion_tokens": 70,
                "prompt_tokens_details": {"cached_tokens": 40},
                "completion_tokens_details": {"reasoning_tokens": 60},
            },
            Usage(input=50, cached=40, output=70, reasoning=60),
        ),
        (
            {
                "input_tokens": 50,
                "output_tokens": 70,
                "input_tokens_details": {"cached_tokens": 40},
                "output_tokens_details": {"reasoning_tokens": 60},
            },
            Usage(input=50, cached=40, output=70, reasoning=60),
        ),
        (
            {"input_tokens": 5, "cache_read_input_tokens": 30, "cache_creation_input_tokens": 2, "output_tokens": 1},
            Usage(input=37, cached=30, output=1),
        ),
        ({"prompt_tokens": 5, "prompt_tokens_details": None, "completion_tokens_details": None}, Usage(input=5)),
        ({"prompt_tokens": 5.0, "completion_tokens": None}, Usage(input=5)),
        ({"prompt_tokens": 3, "prompt_tokens_details": {"cached_tokens": 9}}, Usage(input=3, cached=3)),
        ({"completion_tokens": 3, "completion_tokens_details": {"reasoning_tokens": 9}}, Usage(output=3, reasoning=3)),
    ],
)
def test_usage_is_read(usage: object, read: Usage) -> None:
    assert read_usage({"usage": usage}) == read


@pytest.mark.parametrize(
    "body",
    [
        None,
        [],
        "usage",
        {},
        {"usage": None},
        {"usage": []},
        {"usage": "12"},
        {"usage": {"prompt_tokens": "12", "completion_tokens": True}},
        {"usage": {"prompt_tokens": -1, "completion_tokens": 1.5}},
        {"usage": {"prompt_tokens": 2**31, "completion_tokens": 1e300}},
        {"usage": {"prompt_tokens": float("nan"), "completion_tokens": float("inf")}},
        {"usage": {"prompt_tokens_details": [1], "completion_tokens_details": "x"}},
    ],
)
def test_what_is_no_usage_counts_as_none(body: object) -> None:
    assert read_usage(body) == NO_USAGE
