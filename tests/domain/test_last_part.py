"""In the last part of a batch the longest requests start first."""

from __future__ import annotations

import json
import random
from heapq import heapreplace
from statistics import mean
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overnight.domain.last_part import is_last_part, longest_first, longest_output

CHAT = "/v1/chat/completions"
NO_LIMIT = float("inf")


def output(url: str = CHAT, defaults: dict[str, Any] | None = None, **body: Any) -> float:
    line = {"custom_id": "a", "method": "POST", "url": url, "body": {"model": "m", **body}}
    return longest_output(json.dumps(line).encode(), url, defaults or {})


def test_a_request_says_itself_how_long_its_answer_may_be() -> None:
    assert output(max_tokens=7) == 7
    assert output(max_completion_tokens=8) == 8
    assert output(max_tokens=9, max_completion_tokens=8) == 8
    assert output("/v1/completions", max_tokens=5, max_completion_tokens=1) == 5


def test_the_limit_of_its_batch_holds_where_it_has_none() -> None:
    assert output(defaults={"max_decoding_length": 5}) == 5
    assert output(defaults={"max_decoding_length": 5}, max_tokens=7) == 7
    assert output(defaults={"max_decoding_length": 5}, max_tokens=None) == 5


@pytest.mark.parametrize("limit", [None, "many"])
def test_an_answer_without_a_limit_may_be_the_longest(limit: Any) -> None:
    assert output(max_tokens=limit) == output() == NO_LIMIT


def test_embeddings_are_all_alike() -> None:
    assert output("/v1/embeddings", max_tokens=5, input="x") == output("/v1/embeddings", input="y")


def test_the_last_part_is_what_does_not_fit_and_is_no_more_than_two_a_slot() -> None:
    assert not is_last_part(4, free=4, slots=4)
    assert is_last_part(5, free=4, slots=4)
    assert is_last_part(8, free=0, slots=4)
    assert not is_last_part(9, free=0, slots=4)
    assert not is_last_part(0, free=0, slots=4)


def test_equals_keep_their_order() -> None:
    assert longest_first("abcde", [1, NO_LIMIT, 2, 1, NO_LIMIT]) == ["b", "e", "c", "a", "d"]


def makespan(lengths: list[float], slots: int) -> float:
    """When the last one ends, each starting in the slot that is free first."""
    ends = [0.0] * slots
    for length in lengths:
        heapreplace(ends, ends[0] + length)
    return max(ends)


@given(st.lists(st.integers(1, 500), min_size=1, max_size=32), st.integers(1, 16))
def test_it_is_never_a_third_slower_than_any_other_order(lengths: list[int], slots: int) -> None:
    """Graham's bound for this order: 4/3 - 1/(3 slots) times the best there is."""
    as_given = makespan([float(n) for n in lengths], slots)

    assert makespan(longest_first(lengths, lengths), slots) <= (4 / 3 - 1 / (3 * slots)) * as_given + 1e-6


@pytest.mark.parametrize("slots", [2, 4, 16, 64])
def test_a_batch_of_random_lengths_ends_earlier(slots: int) -> None:
    chance = random.Random(slots)
    as_filed, ours = [], []
    for _ in range(200):
        batch = [chance.expovariate(1 / 100) for _ in range(10 * slots)]
        before, last = batch[: -2 * slots], batch[-2 * slots :]
        as_filed.append(makespan(batch, slots))
        ours.append(makespan([*before, *longest_first(last, last)], slots))

    assert mean(ours) < 0.98 * mean(as_filed)
