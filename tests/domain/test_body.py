"""What is sent to a model server."""

from __future__ import annotations

import json
from typing import Any

import pytest

from overnight.domain.body import prepare, read_request

CHAT = "/v1/chat/completions"
ODD = b'{ "model" :"m","seed":123456789012345678901234567890, "x":1.50 ,"s":"\\u00e9\\/","nested":{"temperature":2} }'


def sent(body: bytes, url: str = CHAT, model: str | None = None, **defaults: Any) -> dict[str, Any]:
    decoded: dict[str, Any] = json.loads(prepare(body, url, defaults, model))
    return decoded


def test_a_body_with_nothing_to_add_is_sent_byte_for_byte() -> None:
    assert prepare(ODD, CHAT, {}, None) is ODD


def test_what_is_not_replaced_keeps_its_bytes() -> None:
    body = prepare(ODD, CHAT, {"temperature": 0.5}, "server's")
    assert body.startswith(b'{"model":"server\'s",')
    for kept in (b"123456789012345678901234567890", b"1.50", b'"\\u00e9\\/"', b'{"temperature":2}'):
        assert kept in body
    assert json.loads(body)["temperature"] == 0.5


def test_defaults_are_added_where_the_body_has_no_value() -> None:
    body = sent(b'{"temperature":0,"top_p":null}', temperature=1.0, top_p=0.3, top_k=7)
    assert body == {"temperature": 0, "top_p": 0.3, "top_k": 7}


@pytest.mark.parametrize("own", ["max_tokens", "max_completion_tokens"])
def test_a_body_with_an_output_limit_of_its_own_keeps_it(own: str) -> None:
    assert sent(b'{"%b":5}' % own.encode(), max_decoding_length=9) == {own: 5}


def test_an_output_limit_is_added_where_there_is_none() -> None:
    assert sent(b"{}", max_decoding_length=9) == {"max_tokens": 9}
    assert sent(b'{"max_completion_tokens":null}', max_decoding_length=9)["max_tokens"] == 9
    assert sent(b'{"max_tokens":null}', max_decoding_length=9) == {"max_tokens": 9}


def test_the_context_length_of_a_batch_is_no_field_of_a_body() -> None:
    assert sent(b"{}", max_context_length=100) == {}


def test_embeddings_are_not_sampled() -> None:
    body = sent(b'{"input":"a"}', "/v1/embeddings", "vec", temperature=1.0, max_decoding_length=9)
    assert body == {"input": "a", "model": "vec"}


def test_a_model_that_the_body_lacks_is_added() -> None:
    assert sent(b"{}", model="m") == {"model": "m"}


def test_a_stored_line_is_read_with_its_body_as_written() -> None:
    request = read_request(b'{"custom_id":"a\\n","method":"POST","url":"/v1/embeddings","body":' + ODD + b"}")
    assert (request.custom_id, request.url, bytes(request.body)) == ("a\n", "/v1/embeddings", ODD)
