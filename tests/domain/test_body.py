"""What is sent to a model server."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overnight.domain.body import prepare, read_request

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
EMBEDDINGS = "/v1/embeddings"
ODD = b'{"model":"m" , "seed":12345678901234567890123456789,"x":1.10,"s":"\\u00e9\\/\\ud83d\\ude00", "messages":[ ]}'


def test_a_body_that_needs_nothing_is_sent_byte_for_byte() -> None:
    assert prepare(ODD, CHAT, {}, None) is ODD
    assert prepare(ODD.replace(b'"seed"', b'"temperature"'), CHAT, {"temperature": 0.1}, None).startswith(
        b'{"model":"m" '
    )


def test_values_that_stay_are_passed_on_as_they_were_written() -> None:
    sent = prepare(ODD, CHAT, {"temperature": 0.25}, "other")

    for written in (b"12345678901234567890123456789", b"1.10", b'"\\u00e9\\/\\ud83d\\ude00"', b"[ ]"):
        assert written in sent
    assert json.loads(sent)["model"] == "other"
    assert json.loads(sent)["temperature"] == 0.25


@pytest.mark.parametrize(
    ("body", "sent"),
    [
        ({}, 0.7),
        ({"temperature": None}, 0.7),
        ({"temperature": 0}, 0),
        ({"temperature": 0.3}, 0.3),
    ],
)
def test_a_requests_own_sampling_wins_over_the_batchs(body: dict[str, Any], sent: float) -> None:
    prepared = json.loads(prepare(json.dumps(body).encode(), CHAT, {"temperature": 0.7}, None))

    assert prepared["temperature"] == sent


@pytest.mark.parametrize(
    ("url", "body", "sent"),
    [
        (CHAT, {}, {"max_tokens": 50}),
        (CHAT, {"max_tokens": 9}, {"max_tokens": 9}),
        (CHAT, {"max_completion_tokens": 9}, {"max_completion_tokens": 9}),
        (CHAT, {"max_completion_tokens": None}, {"max_completion_tokens": None, "max_tokens": 50}),
        (COMPLETIONS, {}, {"max_tokens": 50}),
        (COMPLETIONS, {"max_tokens": 9}, {"max_tokens": 9}),
        (EMBEDDINGS, {}, {}),
    ],
)
def test_the_batchs_output_limit_is_for_requests_without_their_own(
    url: str, body: dict[str, Any], sent: dict[str, Any]
) -> None:
    assert json.loads(prepare(json.dumps(body).encode(), url, {"max_decoding_length": 50}, None)) == sent


def test_embeddings_get_no_sampling() -> None:
    assert (
        prepare(b'{"input":"x"}', EMBEDDINGS, {"temperature": 1.0, "top_p": 0.5, "top_k": 3}, None) == b'{"input":"x"}'
    )


@given(
    st.dictionaries(st.text(), st.none() | st.booleans() | st.integers() | st.text() | st.lists(st.integers())),
    st.dictionaries(st.sampled_from(["temperature", "top_p", "top_k", "max_decoding_length"]), st.integers(1, 9)),
)
def test_nothing_is_dropped_or_changed_but_what_is_said(body: dict[str, Any], defaults: dict[str, Any]) -> None:
    sent = json.loads(prepare(json.dumps(body).encode(), CHAT, defaults, None))

    added = sent.keys() - body.keys()
    assert added <= {"temperature", "top_p", "top_k", "max_tokens"}
    assert {k: v for k, v in sent.items() if k in body and body[k] is not None} == {
        k: v for k, v in body.items() if v is not None
    }


def test_a_stored_line_is_read_with_its_body_as_it_was_written() -> None:
    request = read_request(b'{"custom_id":"a\\u00e9","method":"POST","url":"/v1/completions","body":' + ODD + b"}")

    assert request.custom_id == "aé"
    assert bytes(request.body) == ODD
    assert request.url == COMPLETIONS


def test_a_model_that_the_body_lacks_is_added() -> None:
    assert json.loads(prepare(b"{}", CHAT, {}, "m")) == {"model": "m"}


def test_an_answer_without_a_limit_of_its_own_is_no_longer_than_the_context_of_its_batch() -> None:
    assert json.loads(prepare(b"{}", CHAT, {"max_context_length": 100}, None)) == {"max_tokens": 100}
    both = {"max_context_length": 100, "max_decoding_length": 300}
    assert json.loads(prepare(b"{}", CHAT, both, None)) == {"max_tokens": 100}
    assert json.loads(prepare(b"{}", CHAT, both | {"max_context_length": 400}, None)) == {"max_tokens": 300}
    assert json.loads(prepare(b'{"max_tokens":5}', CHAT, both, None)) == {"max_tokens": 5}
