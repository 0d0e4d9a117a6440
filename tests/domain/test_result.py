"""The lines of result files."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import pytest

from overnight.domain import ids, result
from overnight.domain.outcome import Try

BATCH = UUID("0123456789abcdef0123456789abcdef")
SPLITS = "\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"
"""Everything that str.splitlines splits at."""


def parsed(line: bytes) -> dict[str, Any]:
    """A line as a client reads it: exactly one, whatever it splits by."""
    (only,) = line.decode().splitlines()
    assert line.endswith(b"\n")
    found: dict[str, Any] = json.loads(only)
    return found


def test_a_request_that_was_answered() -> None:
    line = parsed(result.of_try(BATCH, 10, "a", "req_1", Try(status=200, body=b'{"x":1.0}')))
    assert line == {
        "id": "batch_req_0123456789abcdef012345670000000a",
        "custom_id": "a",
        "response": {"status_code": 200, "request_id": "req_1", "body": {"x": 1.0}},
        "error": None,
    }


def test_a_request_that_failed() -> None:
    came = Try(status=400, code="invalid_request", message="no", error_body=b'{"why":"x"}')
    line = parsed(result.of_try(BATCH, 0, "a", "req_1", came))
    assert line["response"] is None
    assert line["error"] == {"code": "invalid_request", "message": "no", "status": 400, "body": {"why": "x"}}


def test_an_error_without_a_reply_has_no_status_and_no_body() -> None:
    line = parsed(result.of_try(BATCH, 0, "a", "req_1", Try(status=None, code="timeout", message="late")))
    assert line["error"] == {"code": "timeout", "message": "late"}


@pytest.mark.parametrize("text", [*SPLITS, f"all {SPLITS}", '"quoted"\\', "\x00", "🌙", ""])
def test_no_text_of_others_ends_a_line(text: str) -> None:
    line = parsed(result.failed(BATCH, 0, f"id {text}", "timeout", f"says {text}", body=b'"x\xe2\x80\xa8"'))
    assert line["custom_id"] == f"id {text}"
    assert line["error"]["message"] == f"says {text}"
    assert line["error"]["body"] == "x\u2028"


def test_escaping_changes_no_character_that_looks_alike() -> None:
    text = '"…‐ÂÅé"'.encode()
    assert result.safe_to_split(text) == text


def test_new_names_of_requests_are_ids_in_order_of_time() -> None:
    early, late = ids.new_text(ids.REQUEST, 1_000), ids.new_text(ids.REQUEST, 1_001)
    assert early < late
    for text in (early, late):
        value = ids.read(ids.REQUEST, text)
        assert value is not None
        assert (value.version, value.variant) == (7, "specified in RFC 4122")
    assert len({ids.new_text(ids.REQUEST, 1_000) for _ in range(1_000)}) == 1_000
