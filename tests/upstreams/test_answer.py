"""What a try came to, for everything an upstream may send."""

from __future__ import annotations

import json

import pytest

from overnight.domain.outcome import NO_USAGE, Done, Try, Usage, decide
from overnight.upstreams.answer import read_reply
from overnight.upstreams.call import Broken, BrokenKind
from tests.upstreams.judge import NOW, WINDOW, is_tried_again, judge

CHAT = b'{"choices":[{"message":{"content":"yes"}}],"usage":{"prompt_tokens":3,"completion_tokens":1}}'
USAGE = Usage(input=3, output=1)


def test_a_valid_reply_is_a_success_with_its_usage() -> None:
    came = judge(CHAT)
    assert came == Try(status=200, body=CHAT, usage=USAGE)
    assert isinstance(decide(came, 1, NOW, WINDOW, 0.0), Done)


def test_any_status_of_success_is_one() -> None:
    assert judge(CHAT, 201).body == CHAT


def test_the_bytes_of_a_reply_stay_as_they_are() -> None:
    body = b'{ "big":123456789012345678901234567890, "f":1.10, "e":1E5, "z":-0.0, "s":"\\u00e9\\/\\n \xc3\xa9", "a":1 }'
    assert judge(b"\xef\xbb\xbf" + body).body == body
    assert judge(b" \r\n\t" + body + b"\n").body == body


def test_a_reply_over_several_lines_becomes_one_with_its_numbers_untouched() -> None:
    body = b'{\r\n  "n": 1.10,\n  "big": 12345678901234567890123,\n  "s": "a\\nb \\u00e9"\n}\n'
    assert judge(body).body == b'{"n":1.10,"big":12345678901234567890123,"s":"a\\nb \\u00e9"}'


def test_separators_inside_strings_are_escaped() -> None:
    body = '{"s":"a\u2028b\u2029c\x85d é \u2027 \x7f"}'.encode()
    came = judge(body)
    assert came.body == '{"s":"a\\u2028b\\u2029c\\u0085d é \u2027 \x7f"}'.encode()
    assert len(came.body.decode().splitlines()) == 1
    assert json.loads(came.body) == json.loads(body)


@pytest.mark.parametrize("size", [29, 30])
def test_a_result_at_the_limit_passes_and_one_byte_more_does_not(size: int) -> None:
    body = b'{"usage":{"prompt_tokens":10}}'
    came = judge(body, most=size)
    assert (came.code, came.usage) == (None if size == 30 else "result_too_large", Usage(input=10))
    assert not is_tried_again(came)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>Bad Gateway</html>",
        CHAT[:-1],
        CHAT + b"x",
        CHAT + CHAT,
        b'{"a":"\xff"}',
        b'{"a":"\xed\xa0\x80"}',
        b'{"a":"\\ud800"}',
        b'{"a":NaN}',
        b'{"a":[{"b":-Infinity}]}',
        b'{"a":1e999}',
        b'{"a":-1e999}',
        b'{"a":01}',
        b'{"a":"\n"}',
        b'{"a":' + b"9" * 5_000 + b"}",
        b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b"[" * 100_000,
        b"[]",
        b'"text"',
        b"1",
        b"null",
        b"true",
    ],
)
def test_a_reply_that_is_no_json_object_fails_for_good(body: bytes) -> None:
    came = judge(body)
    assert (came.status, came.code) == (502, "upstream_error")
    assert came.message
    assert not came.blames_route
    assert not is_tried_again(came)
    if came.error_body is not None:
        json.loads(came.error_body)


@pytest.mark.parametrize("spoilt", [b'"a":"\xff",', b'"a":1e999,', b'"a":NaN,', b'"a":"\\ud800",'])
def test_the_usage_of_a_spoilt_reply_is_kept(spoilt: bytes) -> None:
    came = judge(b"{" + spoilt + CHAT[1:])
    assert (came.code, came.usage) == ("upstream_error", USAGE)


@pytest.mark.parametrize(
    ("status", "code", "again", "blames"),
    [
        (400, "invalid_request", False, False),
        (401, "forbidden", False, False),
        (402, "invalid_request", False, False),
        (403, "forbidden", False, False),
        (404, "model_not_found", False, False),
        (408, "upstream_error", True, False),
        (409, "invalid_request", False, False),
        (413, "invalid_request", False, False),
        (422, "invalid_request", False, False),
        (425, "upstream_error", True, False),
        (429, "rate_limited", True, False),
        (500, "upstream_error", True, True),
        (501, "upstream_error", True, True),
        (502, "upstream_error", True, True),
        (503, "service_unavailable", True, True),
        (504, "timeout", False, False),
        (529, "upstream_error", True, True),
        (301, "upstream_error", False, False),
        (304, "upstream_error", False, False),
        (600, "upstream_error", True, True),
    ],
)
def test_each_status_has_its_meaning(status: int, code: str, again: bool, blames: bool) -> None:
    error = {"error": {"message": "It cannot be.", "type": "x"}}
    for body in (error, b"", b"It cannot be.", b"\xff\xfe", b"<html>", b"[]", b"null"):
        came = judge(body, status)
        assert (came.status, came.code, came.blames_route) == (status, code, blames)
        assert is_tried_again(came) is again
        assert came.message
        assert came.body is None
    assert "It cannot be." in judge(error, status).message
    assert judge(error, status).error_body == json.dumps(error).encode()


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        ({"error": {"message": "m", "code": 429}}, 429, "rate_limited"),
        ({"error": {"message": "m", "code": "429"}}, 429, "rate_limited"),
        ({"error": {"message": "m", "status": 400}}, 400, "invalid_request"),
        ({"error": {"message": "m"}, "status": 404}, 404, "model_not_found"),
        ({"error": {"message": "m", "type": "invalid_request_error", "code": None}}, 400, "invalid_request"),
        ({"error": {"message": "m", "code": "rate_limit_exceeded"}, "choices": []}, 429, "rate_limited"),
        ({"error": {"message": "m", "code": 200}}, 502, "upstream_error"),
        ({"error": {"message": "m", "code": True}}, 502, "upstream_error"),
        ({"error": {"message": "m", "code": 1e9}}, 502, "upstream_error"),
        ({"error": {"message": "m"}}, 502, "upstream_error"),
        ({"error": {"x": None}}, 502, "upstream_error"),
        ({"error": "overloaded"}, 502, "upstream_error"),
        ({"object": "error", "message": "m", "type": "NotFoundError", "code": 404}, 404, "model_not_found"),
        ({"object": "error", "message": "m", "type": "BadRequestError"}, 400, "invalid_request"),
        ({"type": "error", "error": {"type": "overloaded_error", "message": "m"}}, 503, "service_unavailable"),
        ({"status": "failed", "output": [], "error": {"code": "server_error", "message": "m"}}, 502, "upstream_error"),
    ],
)
def test_a_200_with_an_error_object_is_that_error(error: object, status: int, code: str) -> None:
    came = judge(error)
    assert (came.status, came.code) == (status, code)
    assert came.error_body == json.dumps(error).encode()


@pytest.mark.parametrize(
    "body",
    [
        {"choices": [], "error": None},
        {"choices": [], "error": {}},
        {"choices": [], "error": "none"},
        {"output": [], "error": None, "status": "completed"},
        {"object": "chat.completion"},
        {"type": "message", "content": []},
    ],
)
def test_a_result_with_an_empty_error_is_a_result(body: object) -> None:
    assert judge(body).code is None


def test_the_usage_of_an_error_is_kept() -> None:
    body = {"error": {"message": "m", "code": 500}, "usage": {"prompt_tokens": 7}}
    assert judge(body).usage == judge(body, 500).usage == Usage(input=7)


@pytest.mark.parametrize(
    ("kind", "sent", "code", "again", "blames", "lost"),
    [
        (BrokenKind.REFUSED, False, "service_unavailable", True, True, False),
        (BrokenKind.CONNECT_TIMEOUT, False, "service_unavailable", True, True, False),
        (BrokenKind.NO_ADDRESS, False, "service_unavailable", True, True, False),
        (BrokenKind.TLS, False, "service_unavailable", True, True, False),
        (BrokenKind.NO_SOCKET, False, "service_unavailable", True, False, False),
        (BrokenKind.CLOSED, True, "upstream_error", True, True, True),
        (BrokenKind.CLOSED, False, "upstream_error", True, True, False),
        (BrokenKind.CUT, True, "upstream_error", True, True, True),
        (BrokenKind.GARBAGE, True, "upstream_error", True, True, False),
        (BrokenKind.TOO_LARGE, True, "result_too_large", False, False, False),
        (BrokenKind.TIMEOUT, True, "timeout", False, False, False),
        (BrokenKind.CANCELLED, True, "upstream_error", True, False, False),
    ],
)
def test_each_way_to_break_has_its_meaning(
    kind: BrokenKind, sent: bool, code: str, again: bool, blames: bool, lost: bool
) -> None:
    broken = Broken(kind, "What happened.", sent)
    came = read_reply(broken, most_bytes=10, now=NOW)
    assert (came.code, came.message, came.usage) == (code, "What happened.", NO_USAGE)
    assert (is_tried_again(came), came.blames_route, came.lost_server) == (again, blames, lost)
    assert came.gone == (kind in {BrokenKind.REFUSED, BrokenKind.CLOSED, BrokenKind.CUT})
    local = read_reply(broken, most_bytes=10, local_engine=True, now=NOW)
    assert (local.code, local.blames_route, local.lost_server) == (code, False, lost)


def test_every_way_to_break_is_judged() -> None:
    for kind in BrokenKind:
        assert read_reply(Broken(kind, "m", sent=True), most_bytes=10, now=NOW).code


def test_a_local_engine_that_loads_its_model_is_not_blamed() -> None:
    loading = {"error": {"code": 503, "message": "Loading model", "type": "unavailable_error"}}
    came = judge(loading, 503, local=True)
    assert (came.may_pass, came.blames_route) == (True, False)
    assert judge(b"", 500, local=True).blames_route


def test_a_server_that_cannot_read_its_own_model_is_well() -> None:
    message = "The model produced output that does not match the expected peg-native format"
    came = judge({"error": {"code": 500, "message": message, "type": "server_error"}}, 500)
    assert (came.code, came.may_pass, came.unreadable, came.blames_route) == ("upstream_error", True, True, False)
    assert not judge({"error": {"message": "Compute error."}}, 500).unreadable


def test_a_local_engine_that_answers_while_it_dies_has_not_tried() -> None:
    dying = {"error": {"message": "The server had an error while processing your request.", "code": 500}}
    older = {"object": "error", "message": "EngineCore encountered an issue. See stack trace (above).", "code": 500}
    assert judge(dying, 500, local=True).lost_server
    assert judge(older, 500, local=True).lost_server
    assert judge({"error": {"message": "dead"}}, 503, local=True).lost_server
    assert not judge({"error": {"message": "No tool parser."}}, 500, local=True).lost_server
    assert not judge(dying, 500).lost_server
