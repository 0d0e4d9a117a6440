"""`overnight run` with several inputs: their order, their outputs, what is added and what is run again."""

from __future__ import annotations

import errno
import io
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Shell, write
from tests.process import chat
from tests.witness import Witness

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(shell: Shell, tmp_path: Path) -> Run:
    """The command, with locks of its own."""

    def call(*words: str | Path) -> tuple[int, str, str]:
        return shell("run", *words, "--data-dir", tmp_path / "data")

    return call


@pytest.fixture(autouse=True)
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("overnight.cli.follow.LOOK_EVERY", 0.05)


def names(path: Path) -> list[str]:
    return [json.loads(line)["custom_id"] for line in path.read_text("utf-8").splitlines()]


def seen(witness: Witness, texts: list[str]) -> list[int]:
    return [witness.seen[text] for text in texts]


def test_files_and_patterns_become_one_file_in_the_order_of_the_requests(run: Run, tmp_path: Path) -> None:
    for name in "abc":
        write(tmp_path / f"{name}.jsonl", (chat(f"{name}-{i}", f"order {name} {i}") for i in range(20)))

    code, _, said = run(tmp_path / "b.jsonl", tmp_path / "[abc].jsonl", "-o", tmp_path / "out", "--ordered")

    assert (code, "60 of 60 answered" in said) == (0, True), said
    assert names(tmp_path / "out") == [f"{name}-{i}" for name in "bac" for i in range(20)]


def test_a_folder_gets_a_file_for_each_input(run: Run, tmp_path: Path) -> None:
    for name in "ab":
        write(tmp_path / f"{name}.jsonl", [chat("the same", f"folder {name}")])
    (tmp_path / "out").mkdir()

    code, _, said = run(tmp_path / "a.jsonl", tmp_path / "b.jsonl", "-o", tmp_path / "out")

    assert code == 0, said
    for name in "ab":
        (line,) = (tmp_path / "out" / f"{name}.answers.jsonl").read_text("utf-8").splitlines()
        body = json.loads(line)["response"]["body"]
        assert body["choices"][0]["message"]["content"] == f"echo: folder {name}"


def test_a_file_that_is_added_runs_and_the_others_do_not_run_again(run: Run, witness: Witness, tmp_path: Path) -> None:
    first = write(tmp_path / "a.jsonl", [chat("a", "added 1")])
    second = write(tmp_path / "b.jsonl", [chat("b", "added 2")])
    run(first, "-o", tmp_path / "out")

    code, out, said = run(first, second, "-o", tmp_path / "out", "--json")

    assert code == 0, said
    assert sorted(names(tmp_path / "out")) == ["a", "b"]
    assert seen(witness, ["added 1", "added 2"]) == [1, 1]
    assert [(task["input"], task["total"], task["all_answered"]) for task in json.loads(out)] == [
        ("a.jsonl", 1, True),
        ("b.jsonl", 1, True),
    ]


def test_copies_of_one_file_are_answered_each(run: Run, witness: Witness, tmp_path: Path) -> None:
    for name in "ab":
        write(tmp_path / f"{name}.jsonl", [chat("x", "copied")])

    (tmp_path / "out").mkdir()

    code, _, said = run(tmp_path / "a.jsonl", tmp_path / "b.jsonl", "-o", tmp_path / "out")

    assert code == 0, said
    assert [names(tmp_path / "out" / f"{name}.answers.jsonl") for name in "ab"] == [["x"], ["x"]]
    assert witness.seen["copied"] == 2


def test_copies_of_a_file_that_is_refused_are_refused_each(run: Run, tmp_path: Path) -> None:
    for name in "ab":
        write(tmp_path / f"{name}.jsonl", [{"url": "/v1/chat/completions"}])

    code, _, said = run(tmp_path / "a.jsonl", tmp_path / "b.jsonl", "-o", tmp_path / "out")

    assert (code, "a.jsonl was refused" in said, "b.jsonl was refused" in said) == (1, True, True)


def test_an_id_in_two_inputs_of_one_output_is_refused_before_anything_runs(
    run: Run, witness: Witness, tmp_path: Path
) -> None:
    for name in "abc":
        lines = [chat(f"{name}-{i}", f"shared {name} {i}") for i in range(50)]
        write(tmp_path / f"{name}.jsonl", [*lines, chat("both" if name != "b" else "other", f"shared {name}")])
    out = tmp_path / "out"
    before = witness.seen.total()

    code, _, said = run(*(tmp_path / f"{name}.jsonl" for name in "abc"), "-o", out)
    apart, _, _ = run(*(tmp_path / f"{name}.jsonl" for name in "ab"), "-o", out)

    assert (code, "a.jsonl and c.jsonl both have the custom_id 'both'" in said) == (3, True), said
    assert apart == 0
    assert witness.seen.total() - before == 102


def test_lines_that_nobody_can_read_are_left_to_the_server_to_refuse(run: Run, tmp_path: Path) -> None:
    for name in "ab":
        file = write(tmp_path / f"{name}.jsonl", [chat(name, f"before an unreadable line {name}")])
        with file.open("a") as lines:
            lines.write('{"custom_id": "deep", "body": ' + "[" * 100_000 + "\n")

    code, _, said = run(tmp_path / "a.jsonl", tmp_path / "b.jsonl", "-o", tmp_path / "out")

    assert (code, "a.jsonl was refused" in said, "invalid_json_line" in said) == (1, True, True), said


@pytest.mark.parametrize("ordered", [(), ("--ordered",)], ids=["finished", "ordered"])
def test_what_failed_is_run_again_when_told_and_nothing_else(
    run: Run, witness: Witness, tmp_path: Path, ordered: tuple[str, ...]
) -> None:
    texts = [f"{'[once 400] ' if i % 3 else ''}again {len(ordered)} {i}" for i in range(9)]
    file = write(tmp_path / "in.jsonl", [chat(f"r-{i}", text) for i, text in enumerate(texts)])
    out = tmp_path / "out"

    first, _, said = run(file, "-o", out, *ordered)
    plain, _, hint = run(file, "-o", out, *ordered)
    again, _, said_again = run(file, "-o", out, "--retry-failed", *ordered)
    after, _, _ = run(file, "-o", out, "--retry-failed", *ordered)

    assert (first, plain, again, after) == (1, 1, 0, 0), said_again
    assert "3 of 9 answered, 6 failed" in said
    assert "--retry-failed" in hint
    assert "9 of 9 answered" in said_again
    lines = [json.loads(line) for line in out.read_text("utf-8").splitlines()]
    assert all(line["response"] for line in lines)
    assert seen(witness, texts) == [2 if i % 3 else 1 for i in range(9)]
    found = [line["custom_id"] for line in lines]
    assert (found if ordered else sorted(found)) == [f"r-{i}" for i in range(9)]


class CutJob:
    """A job of nine requests: three are answered at once, three by a retry, three never. One of its batches is gone."""

    def __init__(self, shell: Shell, witness: Witness, folder: Path, gone: int = 0) -> None:
        self.shell, self.witness = shell, witness
        self.out = folder / "out"
        self.data = folder / "data"
        kinds = ("", "[once 400] ", "[status 400] ")
        self.texts = [f"{kinds[i % 3]}cut {folder.name} {i}" for i in range(9)]
        self.file = write(folder, [chat(f"r-{i}", text) for i, text in enumerate(self.texts)])
        self.run()
        code, said, (task,) = self.run("--retry-failed")
        assert (code, task["completed"]) == (1, 6), said
        self.gone = task["batches"][gone]["id"]
        assert shell("delete", self.gone)[0] == 0
        self.before = self.lines()
        self.answers_before = self.answered()

    def run(self, *more: str) -> tuple[int, str, Any]:
        code, out, said = self.shell("run", self.file, "-o", self.out, "--data-dir", self.data, "--json", *more)
        return code, said, json.loads(out or "null")

    def lines(self) -> dict[str, Any]:
        found = [json.loads(line) for line in self.out.read_text("utf-8").splitlines()]
        assert len({line["custom_id"] for line in found}) == len(found)
        return {line["custom_id"]: line for line in found}

    def answered(self) -> set[str]:
        return {name for name, line in self.lines().items() if line["response"]}

    def seen(self) -> Counter[int]:
        return Counter(self.witness.seen[text] for text in self.texts)


def test_answers_of_a_batch_that_is_gone_stay_in_the_output(shell: Shell, witness: Witness, tmp_path: Path) -> None:
    job = CutJob(shell, witness, tmp_path)

    for ordered in ([], ["--ordered"]):
        code, said, (task,) = job.run(*ordered)

        assert (code, task["total"], task["completed"], task["failed"]) == (1, 9, 6, 3)
        assert job.lines() == job.before
        assert f"{job.gone}, which" in said
        assert f"is no longer on the server. What {job.out} held of in.jsonl has stayed there." in said
        assert "6 of 9 answered, 3 failed" in said
    assert list(job.lines()) == [f"r-{i}" for i in range(9)]
    assert job.seen() == {1: 3, 2: 6}


def test_what_failed_is_run_again_after_the_first_batch_is_gone_and_beside_another_file(
    shell: Shell, witness: Witness, tmp_path: Path
) -> None:
    job = CutJob(shell, witness, tmp_path)
    other = write(tmp_path / "other.jsonl", [chat("other", f"beside the cut {tmp_path}")])

    code, said, (cut, beside) = job.run("--retry-failed", str(other))

    assert (code, cut["total"], cut["completed"], cut["failed"], beside["completed"]) == (1, 9, 6, 3, 1), said
    assert job.seen() == {1: 3, 2: 3, 3: 3}
    assert job.answered() == {*job.answers_before, "other"}
    assert job.lines().keys() == {*job.before, "other"}


def test_answers_that_are_nowhere_any_more_are_said_and_run_anew_when_told(
    shell: Shell, witness: Witness, tmp_path: Path
) -> None:
    job = CutJob(shell, witness, tmp_path)
    job.out.unlink()

    code, said, (task,) = job.run()
    kept = job.lines().keys()
    again, said_again, (anew,) = job.run("--again")

    assert (code, task["total"], task["completed"], task["failed"]) == (1, 9, 3, 3)
    assert "3 requests of in.jsonl have no result any more: pass --again" in said
    assert kept == {f"r-{i}" for i in range(9) if i % 3}
    assert (again, anew["total"], anew["completed"]) == (1, 9, 6)
    assert job.seen() == {2: 3, 3: 6}
    assert "no longer on the server" not in said_again


def test_answers_of_a_retry_that_is_gone_stay_in_the_output(shell: Shell, witness: Witness, tmp_path: Path) -> None:
    job = CutJob(shell, witness, tmp_path, gone=1)

    for ordered in ([], ["--ordered"]):
        code, said, (task,) = job.run(*ordered)

        assert (code, task["total"], task["completed"], task["failed"]) == (1, 9, 6, 3)
        assert job.lines().keys() == job.before.keys()
        assert job.answered() == job.answers_before
        assert f"3 answers of in.jsonl that {job.out} held already came from a batch that is no longer" in said
        assert "6 of 9 answered, 3 failed" in said
    assert list(job.lines()) == [f"r-{i}" for i in range(9)]
    assert job.seen() == {1: 3, 2: 6}

    code, _, (task,) = job.run("--overwrite")
    assert (code, task["completed"], len(job.answered()), len(job.lines())) == (1, 3, 3, 9)


def test_what_a_retry_that_is_gone_left_is_run_again_beside_what_it_answered(
    shell: Shell, witness: Witness, tmp_path: Path
) -> None:
    job = CutJob(shell, witness, tmp_path, gone=1)
    # They would be answered a second time; this time they are not.
    kept = {f"r-{i}" for i in range(9) if i % 3 == 1}
    for i in (1, 4, 7):
        witness.seen[job.texts[i]] = 0

    code, said, (task,) = job.run("--retry-failed")

    assert (code, task["completed"], task["failed"]) == (1, 6, 3), said
    assert kept < job.answered() == job.answers_before
    again, _, (anew,) = job.run("--again")
    assert (again, anew["completed"], len(job.answered())) == (1, 6, 6)


def test_requests_come_from_standard_input(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "".join(json.dumps(chat(f"i-{i}", f"piped {i}")) + "\n" for i in range(3))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))

    code, _, said = run("-", "-o", tmp_path / "out")

    assert code == 0, said
    assert sorted(names(tmp_path / "out")) == ["i-0", "i-1", "i-2"]


def test_results_go_to_standard_output_and_all_else_beside_it(run: Run, witness: Witness, tmp_path: Path) -> None:
    file = write(tmp_path, [chat(f"o-{i}", f"printed {i}") for i in range(3)])

    code, out, said = run(file, "-o", "-")
    again, same, said_again = run(file, "-o", "-")

    assert (code, again) == (0, 0), said
    assert sorted(json.loads(line)["custom_id"] for line in out.splitlines()) == ["o-0", "o-1", "o-2"]
    assert "3 of 3 answered." in said
    assert (same, "Nothing is left to do" in said_again) == (out, True)
    assert seen(witness, [f"printed {i}" for i in range(3)]) == [1, 1, 1]


def test_what_is_said_after_the_progress_has_a_line_of_its_own(run: Run, shell: Shell, tmp_path: Path) -> None:
    run(write(tmp_path, [chat("a", "own line")]), "-o", tmp_path / "out")

    assert any(line.startswith("1 of 1 answered") for line in shell.said)


def test_parameters_reach_the_model_where_a_request_says_nothing(run: Run, witness: Witness, tmp_path: Path) -> None:
    lines = [chat("silent", "param silent"), chat("own", "param own", temperature=0.9)]

    code, _, said = run(write(tmp_path, lines), "-o", tmp_path / "out", "--param", "temperature=0.2")

    assert code == 0, said
    sent = {body["messages"][0]["content"]: body["temperature"] for body in witness.bodies if "temperature" in body}
    assert (sent["param silent"], sent["param own"]) == (0.2, 0.9)


def test_results_for_which_there_is_no_room_are_kept_and_said_to_be(
    run: Run, shell: Shell, witness: Witness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write(tmp_path, [chat("a", "no room")])

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr("overnight.client.download._Download._add", full)
        code, _, said = run(file, "-o", tmp_path / "out")
        batch = shell.service.get("/v1/batches?limit=1")["first_id"]
        results, _, told = shell("results", batch, "-o", tmp_path / "other")
    again, _, _ = run(file, "-o", tmp_path / "out")

    assert (code, results, again) == (3, 3, 0)
    assert f"{tmp_path / 'out'} cannot be written: No space left on device. What was answered is kept" in said
    assert f"{tmp_path / 'other'} cannot be written: No space left on device." in told
    assert (names(tmp_path / "out"), witness.seen["no room"]) == (["a"], 1)


def test_a_refused_file_does_not_keep_the_others_from_running(run: Run, tmp_path: Path) -> None:
    good = write(tmp_path / "good.jsonl", [chat("a", "beside a refused one")])
    bad = write(tmp_path / "bad.jsonl", [chat("b", "x"), chat("b", "y")])

    code, _, said = run(bad, good, "-o", tmp_path / "out")

    assert code == 1
    assert "bad.jsonl was refused" in said
    assert "duplicate_custom_id" in said
    assert names(tmp_path / "out") == ["a"]


def test_an_input_is_never_written_over(run: Run, tmp_path: Path) -> None:
    file = write(tmp_path / "a.jsonl", [chat("a", "precious")])
    whole = file.read_bytes()

    code, _, said = run(file, "-o", file, "--overwrite")

    assert (code, "is an input" in said) == (3, True)
    assert file.read_bytes() == whole


def test_inputs_of_one_name_need_a_file_for_their_results(run: Run, tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    files = [write(folder / "a.jsonl", [chat("a", "named alike")]) for folder in (tmp_path, tmp_path / "x")]

    code, _, said = run(*files, "-o", tmp_path)

    assert (code, "Two inputs would write to" in said) == (3, True)


def test_a_job_of_several_files_that_was_interrupted_goes_on_with_each(tmp_path: Path) -> None:
    files = [
        write(tmp_path / f"{n}.jsonl", (chat(f"{n}-{i}", f"interrupted {n} {i}") for i in range(60))) for n in range(3)
    ]
    command: list[Any] = [sys.executable, "-m", "overnight", "run", *files, "-o", tmp_path / "out"]
    with Witness(seconds=0.1, most=90) as upstream:
        command += ["--upstream", upstream.url, "--data-dir", tmp_path / "data", "--upstream-slots", "10"]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
            upstream.wait_for(90)
            os.kill(process.pid, signal.SIGTERM)
            upstream.answer_more()
            _, said = process.communicate(timeout=180)
        again = subprocess.run(command, capture_output=True, text=True, timeout=180)

    assert (process.returncode, "go on" in said) == (130, True)
    assert again.returncode == 0, again.stderr
    assert "180 of 180 answered" in again.stderr
    assert sorted(names(tmp_path / "out")) == sorted(f"{n}-{i}" for n in range(3) for i in range(60))
    assert set(upstream.seen.values()) == {1}
