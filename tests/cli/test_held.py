"""What an output file holds, joined with later results."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

from overnight.cli.held import holds_more, join
from overnight.cli.inputs import Input
from overnight.cli.progress import Counts
from tests.cli.conftest import write
from tests.process import chat


def results(path: Path, **answers: Any) -> Path:
    lines = [{"custom_id": one, "response": answer} for one, answer in answers.items()]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    return path


def test_only_an_answer_to_a_request_of_the_job_that_is_nowhere_else_is_more(tmp_path: Path) -> None:
    given = Input("in", write(tmp_path, [chat(name, "x") for name in "abc"]))
    old = results(tmp_path / "old", stranger={}, a={}, b={}, c=None)

    assert not holds_more(old, [results(tmp_path / "1", a={}), results(tmp_path / "2", b={})], given)
    assert holds_more(old, [results(tmp_path / "1", a={}), results(tmp_path / "2", b=None)], given)
    assert holds_more(old, [], given)


def test_a_line_is_replaced_by_a_later_one_but_never_an_answer_by_none(tmp_path: Path) -> None:
    given = Input("in", write(tmp_path, [chat(name, "x") for name in "abcdef"]))
    old = results(tmp_path / "old", stranger={}, c=None, a={"n": 1}, b=None, d={"n": 1})
    with old.open("a") as file:
        file.write('{"custom_id": "f", "response": ' + "[" * 100_000 + "\n")
        file.write('{"custom_id": "e", "resp')
    parts = [results(tmp_path / "1", b={"n": 2}, d=None), results(tmp_path / "2", f=None)]

    for ordered, names in ((False, "cadbf"), (True, "abcdf")):
        target = io.BytesIO()
        joined = join(old, parts, given, target, ordered=ordered)
        lines = [json.loads(line) for line in target.getvalue().splitlines()]
        assert joined == (Counts(6, 3, 2), 2)
        assert "".join(line["custom_id"] for line in lines) == names
        assert {line["custom_id"]: (line["response"] or {}).get("n") for line in lines} == {
            "a": 1,
            "b": 2,
            "c": None,
            "d": 1,
            "f": None,
        }
    assert join(tmp_path / "none", [], given, io.BytesIO(), ordered=False) == (Counts(6, 0, 0), 0)
