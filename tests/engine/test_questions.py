"""The example questions are what the demonstration needs."""

from __future__ import annotations

import json
from pathlib import Path

from overnight.domain.limits import Limits
from overnight.domain.lines import FileCheck

QUESTIONS = Path(__file__).parents[2] / "examples" / "questions.jsonl"


def test_the_example_questions_are_accepted_and_bounded() -> None:
    check = FileCheck(Limits())
    content = QUESTIONS.read_bytes()
    check.feed(content)
    check.end()
    requests = [json.loads(line) for line in content.splitlines()]
    bodies = [request["body"] for request in requests]

    assert check.problems == []
    assert len({request["custom_id"] for request in requests}) == check.lines >= 100
    # A small model that decodes greedily may repeat itself without end.
    assert all(body.get("max_tokens") or body.get("max_completion_tokens") for body in bodies)
    assert {body["model"] for body in bodies} == {"smollm2-135m-instruct"}
    assert sum("response_format" in body for body in bodies) == 10
    assert sum("temperature" in body for body in bodies) < 10
