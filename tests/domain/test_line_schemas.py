"""The published schemas of lines: what they admit is what the check accepts and what results look like."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import pytest
from jsonschema import Draft202012Validator

from overnight.domain import result
from overnight.domain.line_schemas import LINE_SCHEMAS
from overnight.domain.lines import LineError, parse
from overnight.domain.outcome import Try
from tests.domain import test_lines
from tests.domain.bodies.examples import BAD, CHAT, COMPLETIONS, EMBEDDINGS, GOOD, LEAST
from tools import schema_files

INPUT = Draft202012Validator(LINE_SCHEMAS["batch-input-line.json"])
OUTPUT = Draft202012Validator(LINE_SCHEMAS["batch-output-line.json"])
BATCH = UUID("0123456789abcdef0123456789abcdef")

READABLE = {
    name: text
    for name, text in (
        *((f"bad: {name}", bad[0]) for name, bad in test_lines.BAD.items() if not bad[1].startswith("invalid_json")),
        *((f"good: {name}", text) for name, text in test_lines.GOOD.items()),
    )
    if "UTF-8" not in name
}
"""The examples that are strict JSON: what else makes a line is not for a schema to say."""


def request(url: str, added: dict[str, Any]) -> dict[str, Any]:
    return {"custom_id": "a", "method": "POST", "url": url, "body": LEAST[url] | added}


def is_accepted(text: bytes) -> bool:
    try:
        parse(text)
    except LineError:
        return False
    return True


@pytest.mark.parametrize("name", LINE_SCHEMAS)
def test_the_files_in_the_docs_are_the_schemas_that_are_served(name: str) -> None:
    Draft202012Validator.check_schema(LINE_SCHEMAS[name])
    assert schema_files.files()[name] == (schema_files.FOLDER / name).read_text("utf-8"), (
        "run: python -m tools.schema_files"
    )


@pytest.mark.parametrize("name", READABLE)
def test_the_schema_and_the_check_of_a_line_agree(name: str) -> None:
    assert INPUT.is_valid(json.loads(READABLE[name])) == is_accepted(READABLE[name])


@pytest.mark.parametrize("url", [CHAT, COMPLETIONS, EMBEDDINGS])
def test_the_body_is_held_to_the_table_of_its_url(url: str) -> None:
    for added in GOOD[url]:
        assert INPUT.is_valid(request(url, added)), added
    for added, _ in BAD[url]:
        assert not INPUT.is_valid(request(url, added)), added


@pytest.mark.parametrize(
    "line",
    [
        result.answered(BATCH, 10, "a", "req_1", 200, b'{"x":1.0}'),
        result.failed(BATCH, 0, "a", "invalid_request", "no", 400, b'{"why":"x"}'),
        result.failed(BATCH, 0, "a", "batch_expired", "late"),
        result.of_try(BATCH, 0, "a", "req_1", Try(status=404, code="model_not_found", message="gone")),
    ],
)
def test_result_lines_are_as_their_schema_says(line: bytes) -> None:
    OUTPUT.validate(json.loads(line))


@pytest.mark.parametrize(
    "changed",
    [
        {"id": "req_1"},
        {"custom_id": ""},
        {"error": {"code": "x", "message": "y"}},
        {"response": None},
        {"response": {"status_code": 200, "body": {}}},
        {"more": 1},
    ],
)
def test_other_lines_are_no_result_lines(changed: dict[str, Any]) -> None:
    line = json.loads(result.answered(BATCH, 10, "a", "req_1", 200, b"{}"))

    assert OUTPUT.is_valid(line)
    assert not OUTPUT.is_valid(line | changed)
