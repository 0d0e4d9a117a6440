"""The lines of result files."""

from __future__ import annotations

import json
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overnight.domain import result
from overnight.domain.outcome import Try

BATCH = UUID("01a2283890 4b7a16a02d2ef441b26980".replace(" ", ""))
SPLITTERS = "\u2028\u2029\u0085\x0b\x0c\x1c\x1d\x1e\r\n"


def test_an_answered_request_has_a_response_and_no_error() -> None:
    line = result.of_try(BATCH, 7, "q-7", "req_x", Try(200, body=b'{"id":1e2,"big":12345678901234567890123}'))

    assert line == (
        b'{"id":"batch_req_01a22838904b7a16a02d2ef400000007","custom_id":"q-7","response":{"status_code":200,'
        b'"request_id":"req_x","body":{"id":1e2,"big":12345678901234567890123}},"error":null}\n'
    )


def test_a_failed_request_has_an_error_with_what_the_server_said() -> None:
    tried = Try(429, code="rate_limited", message="Too many.", error_body=b'{"error":{"message":"slow down"}}')

    line = json.loads(result.of_try(BATCH, 0, "q", "req_x", tried))

    assert line["response"] is None
    assert line["error"] == {
        "code": "rate_limited",
        "message": "Too many.",
        "status": 429,
        "body": {"error": {"message": "slow down"}},
    }


def test_an_error_without_a_server_behind_it_names_no_status_and_no_body() -> None:
    line = json.loads(result.failed(BATCH, 0, "q", "batch_cancelled", "Not run."))

    assert line["error"] == {"code": "batch_cancelled", "message": "Not run."}


@given(st.text(min_size=1), st.text())
def test_any_custom_id_comes_back_as_it_was_on_one_line_for_every_client(custom_id: str, message: str) -> None:
    line = result.failed(BATCH, 0, custom_id, "timeout", message)

    read = json.loads(line)
    assert read["custom_id"] == custom_id
    assert read["error"]["message"] == message
    assert len(line.decode().splitlines()) == 1
    assert line.endswith(b"}\n")


@pytest.mark.parametrize("splitter", SPLITTERS)
def test_what_clients_split_lines_at_is_escaped_in_answers_too(splitter: str) -> None:
    body = result.safe_to_split(json.dumps({"text": f"a{splitter}b"}, ensure_ascii=False).encode())

    line = result.answered(BATCH, 0, "q", "req_x", 200, body)

    assert len(line.decode().splitlines()) == 1
    assert json.loads(line)["response"]["body"]["text"] == f"a{splitter}b"


def test_escaping_changes_no_character_that_looks_alike() -> None:
    text = '"…‐ÂÅé"'.encode()

    assert result.safe_to_split(text) == text
