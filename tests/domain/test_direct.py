"""A request in a create call becomes the line of an input file that says the same, byte for byte."""

from __future__ import annotations

import json

import pytest

from overnight.domain.direct import as_line, name_of, url_of
from overnight.domain.lines import LineError, parse

BODY = (
    b'{"model":"m","messages":[{"role":"user","content":"\\u00e9\\n\xc3\xa9"}],'
    b'"logit_bias":{"1":0.50e+1},"top_p":0.9000000000000000000001}'
)


def test_what_was_left_out_is_added_and_nothing_else_is_touched() -> None:
    request = b'{ "body" : ' + BODY + b', "custom_id":"a"}'
    line = as_line(request)
    assert line.startswith(request[:-1])
    assert parse(line) == {
        "custom_id": "a",
        "method": "POST",
        "url": "/v1/chat/completions",
        "body": json.loads(BODY),
    }


@pytest.mark.parametrize("more", [b',"method":"POST"', b',"url":"/v1/embeddings"', b',"method":"PUT","url":""'])
def test_what_was_said_stays(more: bytes) -> None:
    request = b'{"custom_id":"a","body":' + BODY + more + b"}"
    said = json.loads(request)
    assert json.loads(as_line(request)) == {"method": "POST", "url": "/v1/chat/completions", **said}


def test_a_request_that_says_all_is_the_line_but_for_its_line_ends() -> None:
    pretty = json.dumps({"custom_id": "a\nb", "method": "POST", "url": "/x", "body": json.loads(BODY)}, indent=2)
    line = as_line(pretty.encode())
    assert line == pretty.replace("\n", " ").encode()
    assert json.loads(line) == json.loads(pretty)


@pytest.mark.parametrize(
    "request_",
    [
        b"{}", b"[]", b"5", b'"text"', b"null", b'{"custom_id":5}', b'{"custom_id":"a","custom_id":"b","body":{}}',
        b'{"custom_id":"a","body":{},"url":"/v1/embeddings","u\\u0072l":"/v1/completions"}',
        b'{"custom_id":"\xff"}', b'{"custom_id":"a","body":{},"method":null}', b'{"method":"POST"}',
    ],
)  # fmt: skip
def test_whatever_is_wrong_with_a_request_is_wrong_with_its_line(request_: bytes) -> None:
    with pytest.raises(LineError):
        parse(as_line(request_))


def test_the_name_and_the_address_are_read_where_they_can_be() -> None:
    assert (name_of(b'{"custom_id":"\\u0061b"}'), url_of(b'{"url":"/v1/embeddings"}')) == ("ab", "/v1/embeddings")
    for broken in (b"5", b"{}", b'{"custom_id":5,"url":5}', b'{"custom_id":"\xff","url":"\xff"}'):
        assert (name_of(broken), url_of(broken)) == (None, "/v1/chat/completions")
