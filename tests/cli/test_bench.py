"""`overnight bench`: both ways to ask are measured, and nothing of it is left."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from overnight.cli.app import run
from overnight.cli.bench_report import Measured, report_as_json, tell
from overnight.cli.measure import CHAT, Ran, Side, made_up, ratio
from tests.cli.conftest import Shell, write
from tests.process import chat
from tests.witness import Witness


def left_behind(shell: Shell) -> list[str]:
    return [item["id"] for path in ("/v1/batches", "/v1/files") for item in shell.service.get(path)["data"]]


def test_a_running_server_is_measured_beside_its_model_server_and_left_as_it_was(
    shell: Shell, witness: Witness
) -> None:
    before, asked = left_behind(shell), sum(witness.seen.values())

    code, out, err = shell("bench", "--upstream", witness.url, "--requests", "5", "--rounds", "2", "--json")

    found = json.loads(out)
    assert (code, err) == (0, "")
    assert (found["model"], found["rounds"], found["requests"]) == ("other-model", 2, 5)
    assert sum(witness.seen.values()) - asked == 64 + 2 * 2 * 5
    assert found["ratio"] > 0
    assert found["direct"]["p50_seconds"] <= found["direct"]["p99_seconds"]
    assert left_behind(shell) == before


def test_a_server_without_a_word_on_its_model_server_is_measured_alone(shell: Shell, tmp_path: Path) -> None:
    file = write(tmp_path, [chat("a", "hi"), chat("b", "[status 400] no")])
    before = left_behind(shell)

    code, out, err = shell("bench", file, "--requests", "2", "--rounds", "1")

    assert (code, "--upstream" in err) == (0, True)
    assert ("requests/s" in out, "failed" in out, "asked directly" in out) == (True, True, False)
    assert left_behind(shell) == before


def test_a_server_is_started_where_none_is_named(
    witness: Witness, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)

    code = run(
        ["bench", "--upstream", witness.url, "--upstream-slots", "2", "--requests", "4", "--rounds", "1", "--json"]
    )

    found = json.loads(capfd.readouterr().out)
    assert (code, found["slots"]) == (0, 2)
    assert found["overnight"]["p99_seconds"] is not None
    assert found["cpu_seconds_per_request"] > 0
    assert list(tmp_path.glob("overnight-bench-*")) == []


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["no-such-file.jsonl"], 3, "no-such-file.jsonl"),
        (["--name", "nobody", "--upstream", "http://127.0.0.1:9/v1"], 3, "asked directly"),
        (["--upstream", "nonsense"], 3, "--upstream"),
        (["--model", "m.gguf"], 2, "--model"),
        (["--requests", "0"], 2, "--requests"),
    ],
)
def test_what_cannot_be_measured_is_said_in_one_sentence(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, words: list[str], code: int, says: str
) -> None:
    monkeypatch.setattr("overnight.cli.bench_ready.LISTED_WITHIN", 0.0)
    before = left_behind(shell)

    ended, out, err = shell("bench", *words)

    assert (ended, out, says in err, "Traceback" in err) == (code, "", True, False)
    assert left_behind(shell) == before


def test_a_file_with_a_line_that_is_no_request_is_refused_by_its_line(shell: Shell, tmp_path: Path) -> None:
    file = write(tmp_path, [chat("a", "hi")])
    file.write_text(file.read_text() + "\n{}\n")

    code, _, err = shell("bench", file)

    assert (code, "Line 3" in err) == (3, True)


def test_made_up_prompts_are_of_one_length_and_none_comes_twice() -> None:
    bodies = made_up(CHAT, "m", 5, 7, {"ignore_eos": True})
    found = [json.loads(next(bodies)) for _ in range(50)]

    prompts = {body["messages"][0]["content"] for body in found}
    assert len(prompts) == 50
    assert {len(prompt.split()) for prompt in prompts} == {6}
    assert {(body["model"], body["max_tokens"], body["ignore_eos"]) for body in found} == {("m", 7, True)}


def test_the_ratio_is_that_of_tokens_or_of_requests_where_there_are_no_tokens() -> None:
    loop = Side("loop", [Ran(2.0, 10, 0, 100, [0.1])])

    assert ratio(Side("batch", [Ran(4.0, 10, 0, 100, [])]), loop) == 0.5
    assert ratio(Side("batch", [Ran(1.0, 10, 0, 0, [])]), Side("loop", [Ran(2.0, 10, 0, 0, [])])) == 2.0


def test_what_is_not_known_is_null_for_programs_and_a_dash_for_people(capfd: pytest.CaptureFixture[str]) -> None:
    found = Measured("m", CHAT, None, "of f.jsonl", 3, Side("Overnight", [Ran(1.0, 3, 0, 9, [])]), None)

    tell(found)

    shown = report_as_json(found)
    assert (shown["direct"], shown["ratio"], shown["overnight"]["p50_seconds"]) == (None, None, None)
    assert "–" in capfd.readouterr().out
