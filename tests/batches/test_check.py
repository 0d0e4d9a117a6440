"""A line is checked against its batch: one endpoint, one model, both told with the name of the request."""

from __future__ import annotations

from typing import Any

import pytest

from overnight.batches.check import MOST_NAMES_KEPT, BatchCheck, with_total
from overnight.domain.limits import MOST_PROBLEMS
from overnight.domain.lines import Problem
from tests.batches.factory import CHAT, line

NAMES = {"m": "m", "nick": "m", "other": "other"}


def check() -> BatchCheck:
    return BatchCheck(CHAT, NAMES.get, longest=1_000)


def test_names_of_one_model_go_together() -> None:
    checked = check()
    for number, name in enumerate(("nick", "m", "nick")):
        assert checked.read(number, line(f"r{number}", model=name)) is not None
    assert (checked.model, checked.lines, checked.problem_count) == ("m", 3, 0)


def test_every_line_of_another_model_is_told() -> None:
    checked = check()
    for number, name in enumerate(("m", "other", "nick", "other")):
        checked.read(number, line(f"r{number}", model=name))
    assert [(p.code, p.line, p.param) for p in checked.problems] == [
        ("mismatched_model", 1, "body.model"),
        ("mismatched_model", 3, "body.model"),
    ]
    assert "'r1'" in checked.problems[0].message
    assert "'other'" in checked.problems[0].message
    assert "'m'" in checked.problems[0].message


def test_a_model_that_nothing_serves_is_not_the_models_of_the_batch() -> None:
    checked = check()
    checked.read(0, line("r0", model="gone"))
    assert checked.read(1, line("r1", model="other")) is not None
    assert [(p.code, p.line, p.param) for p in checked.problems] == [("model_not_found", 0, "body.model")]
    assert "'r0'" in checked.problems[0].message


def test_a_model_of_another_endpoint_is_not_said_to_be_served_by_nobody() -> None:
    checked = BatchCheck(CHAT, NAMES.get, longest=1_000, is_known=lambda name: name == "embedder")
    for number, name in enumerate(("embedder", "gone")):
        assert checked.read(number, line(f"r{number}", model=name)) is None
    assert [(p.code, p.message) for p in checked.problems] == [
        ("model_not_found", f"'r0' names the model 'embedder', which does not answer to {CHAT}."),
        ("model_not_found", "'r1' names the model 'gone', which no connected server serves."),
    ]


@pytest.mark.parametrize("body", [{"input": "x"}, {"input": "x", "messages": 5}])
def test_another_endpoint_is_told_with_both(body: dict[str, Any]) -> None:
    checked = check()
    assert checked.read(5, line("r5", url="/v1/embeddings", **body)) is None
    (found,) = checked.problems
    assert (found.code, found.line, found.param) == ("mismatched_endpoint", 5, "url")
    assert "/v1/embeddings" in found.message
    assert CHAT in found.message


def test_a_line_that_was_too_long_is_told() -> None:
    checked = check()
    assert checked.read(3, None) is None
    assert [(p.code, p.line) for p in checked.problems] == [("line_too_long", 3)]


@pytest.mark.parametrize("text", [b"nonsense", b"[]", b'{"custom_id":"a","url":"/v1/embeddings","body":{"model":5}}'])
def test_a_line_that_workers_could_not_read_is_told(text: bytes) -> None:
    checked = check()
    assert checked.read(0, text) is None
    assert [p.code for p in checked.problems] == ["invalid_json_line"]


def test_any_number_of_names_takes_bounded_room() -> None:
    checked = BatchCheck(CHAT, lambda name: None, longest=1_000)
    for number in range(MOST_NAMES_KEPT + 2):
        checked.read(number, line("r", model=f"model-{number}"))
    assert len(checked._models) <= MOST_NAMES_KEPT
    assert len(checked.problems) == MOST_PROBLEMS
    assert checked.problem_count == MOST_NAMES_KEPT + 2


def test_the_total_stands_in_the_last_message() -> None:
    problems = [Problem("invalid_url", i, f"Problem {i}.") for i in range(MOST_PROBLEMS)]
    assert with_total(problems, MOST_PROBLEMS) == problems
    told = with_total(problems, 12_345)
    assert len(told) == MOST_PROBLEMS
    assert told[:-1] == problems[:-1]
    assert told[-1].message.startswith("Problem 999.")
    assert "12,345" in told[-1].message


def test_a_field_that_a_model_cannot_use_is_named_with_the_model() -> None:
    lacks = {"m": frozenset({"guided_json", "tools.custom"})}
    checked = BatchCheck(CHAT, NAMES.get, longest=1_000, lacks_of=lambda model: lacks.get(model, frozenset()))

    assert checked.read(0, line("a", model="nick")) is not None
    assert checked.read(1, line("b", model="nick", guided_json={})) is None
    assert checked.read(2, line("c", tools=[{"type": "custom", "custom": {"name": "c"}}])) is None

    assert [(p.code, p.line, p.param) for p in checked.problems] == [
        ("invalid_parameter", 1, "body.guided_json"),
        ("invalid_parameter", 2, "body.tools[0]"),
    ]
    assert all("'m'" in p.message for p in checked.problems)


def test_what_one_model_cannot_use_another_can() -> None:
    lacks = {"m": frozenset({"guided_json"})}
    checked = BatchCheck(CHAT, NAMES.get, longest=1_000, lacks_of=lambda model: lacks.get(model, frozenset()))

    assert checked.read(0, line("a", model="other", guided_json={})) is not None
