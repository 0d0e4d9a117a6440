"""What fits into a context is sent, what does not is told with both numbers, and an answer ends with its context."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overnight.domain.context import ROOM_FOR_TEMPLATE, Room, fit, may_need_more, room_for, too_long

CHAT, TEXT, VECTORS = "/v1/chat/completions", "/v1/completions", "/v1/embeddings"


def body(**fields: Any) -> bytes:
    return json.dumps(fields).encode()


@pytest.mark.parametrize(
    ("model", "server", "batch", "room"),
    [
        (512, 512, None, Room(512)),
        (512, 512, 512, Room(512)),
        (512, 512, 9_000, Room(512)),
        (512, 512, 40, Room(40, of_batch=True, ends_answers=False)),
        # The server was asked for 300 and made 512.
        (300, 512, None, Room(300, ends_answers=False)),
        (300, 512, 400, Room(300, ends_answers=False)),
        (300, 512, 299, Room(299, of_batch=True, ends_answers=False)),
    ],
)
def test_the_least_of_all_limits_holds(model: int, server: int, batch: int | None, room: Room) -> None:
    assert room_for(model, server, batch) == room


def test_a_short_request_is_not_counted() -> None:
    short = body(prompt="x" * 100, max_tokens=50)
    most = len(short) + ROOM_FOR_TEMPLATE + 50
    assert not may_need_more(short, TEXT, Room(most))
    assert may_need_more(short, TEXT, Room(most - 1))


def test_without_an_own_limit_it_is_counted_only_where_the_server_would_go_on_beyond() -> None:
    free = body(prompt="x")
    assert not may_need_more(free, TEXT, Room(4_096))
    assert may_need_more(free, TEXT, Room(4_096, of_batch=True, ends_answers=False))
    assert may_need_more(free, TEXT, Room(len(free) + ROOM_FOR_TEMPLATE))


def test_what_is_embedded_has_no_answer() -> None:
    text = body(input="x", max_tokens=1)
    most = len(text) + ROOM_FOR_TEMPLATE
    assert not may_need_more(text, VECTORS, Room(most))
    assert may_need_more(text, VECTORS, Room(most - 1))
    assert fit(text, VECTORS, 40, Room(40)) == text
    assert fit(text, VECTORS, 41, Room(40)) is None


@pytest.mark.parametrize(
    ("asked", "sent"),
    [
        ({"max_tokens": 10}, {"max_tokens": 10}),
        ({"max_tokens": 11}, {"max_tokens": 10}),
        ({"max_tokens": 4_096, "max_completion_tokens": 4_096}, {"max_tokens": 10, "max_completion_tokens": 10}),
        ({"max_tokens": None}, {"max_tokens": None}),
        ({"n_predict": -1}, {"n_predict": -1}),
        ({"n_predict": 99}, {"n_predict": 10}),
    ],
)
def test_an_answer_may_be_as_long_as_its_prompt_leaves(asked: dict[str, Any], sent: dict[str, Any]) -> None:
    fitting = fit(body(prompt="x", **asked, seed=1), TEXT, 30, Room(40))
    assert fitting is not None
    assert json.loads(fitting) == {"prompt": "x", **sent, "seed": 1}


@pytest.mark.parametrize("asked", [{}, {"max_tokens": None}])
def test_an_answer_without_a_limit_gets_one_where_the_server_would_go_on_beyond(asked: dict[str, Any]) -> None:
    fitting = fit(body(messages=[], **asked), CHAT, 30, Room(40, of_batch=True, ends_answers=False))
    assert fitting is not None
    assert json.loads(fitting) == {"messages": [], "max_tokens": 10}


def test_everything_else_is_passed_on_as_it_was_written() -> None:
    written = b'{"logit_bias": {"1": 1e2},"big":123456789012345678901234567890,"text":"\\u00e4","max_tokens":99}'
    fitting = fit(written, TEXT, 30, Room(40))
    assert fitting == b'{"logit_bias":{"1": 1e2},"big":123456789012345678901234567890,"text":"\\u00e4","max_tokens":10}'


@pytest.mark.parametrize(
    ("prompt", "asked", "fits"), [(39, 1, True), (40, 1, False), (40, None, False), (41, 0, False), (40, 0, True)]
)
def test_a_prompt_must_leave_room_for_a_token(prompt: int, asked: int | None, fits: bool) -> None:
    assert (fit(body(prompt="x", max_tokens=asked), TEXT, prompt, Room(40)) is not None) is fits


def test_what_does_not_fit_is_told_with_both_numbers_and_whose_limit_it_is() -> None:
    assert too_long(200_000, Room(131_072)) == "Prompt length 200000 exceeds model context 131072"
    assert too_long(41, Room(40, of_batch=True)) == "Prompt length 41 exceeds the batch's max_context_length 40"
    assert too_long(40, Room(40)) == "Prompt length 40 leaves no room for an answer in model context 40"


@given(st.integers(0, 60), st.integers(0, 60) | st.none(), st.integers(1, 50), st.booleans())
def test_prompt_and_answer_are_never_longer_than_the_room(
    prompt: int, asked: int | None, most: int, ends: bool
) -> None:
    room = Room(most, ends_answers=ends)
    fitting = fit(body(prompt="x", max_tokens=asked), TEXT, prompt, room)
    if fitting is None:
        assert prompt + min(1, asked if asked is not None else 1) > most
        return
    limit = json.loads(fitting)["max_tokens"]
    assert prompt + (limit or 0) <= most
    assert limit == asked or limit == most - prompt
