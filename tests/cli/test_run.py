"""`overnight run`: the whole job, continued where it was."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from overnight.cli.follow import Following
from overnight.server import Server
from tests.process import chat
from tests.witness import Witness


class Job:
    """One job, given to the command as often as the test likes."""

    def __init__(self, folder: Path, upstream: str, lines: list[dict[str, Any]]) -> None:
        self.file = folder / "questions.jsonl"
        self.out = folder / "answers.jsonl"
        self.file.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
        self.command = [sys.executable, "-m", "overnight", "run", str(self.file), "-o", str(self.out)]
        self.command += ["--upstream", upstream, "--data-dir", str(folder / "data"), "--upstream-slots", "10"]

    def start(self, *more: str) -> subprocess.Popen[str]:
        # Without a terminal's own Ctrl-C: a test sends its signals to this process alone.
        return subprocess.Popen(
            [*self.command, *more],
            stderr=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
            preexec_fn=_hear_all_signals,
        )

    def run(self, *more: str) -> tuple[int, str]:
        with self.start(*more) as process:
            _, said = process.communicate(timeout=180)
            return process.returncode, " ".join(said.split())

    def answers(self) -> dict[str, dict[str, Any]]:
        lines = [json.loads(line) for line in self.out.read_text("utf-8").splitlines()]
        found = {line["custom_id"]: line for line in lines}
        assert len(found) == len(lines)
        return found


def _hear_all_signals() -> None:
    """As in a terminal, also where the tests themselves run in the background or under nohup, which ignore some."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def questions(count: int) -> list[dict[str, Any]]:
    return [chat(f"r-{i}", f"question {i}") for i in range(count)]


def test_a_job_is_done_in_one_command_and_the_second_time_nothing_is_left(tmp_path: Path) -> None:
    with Witness() as witness:
        job = Job(tmp_path, witness.url, questions(30))

        code, said = job.run()
        code_again, said_again = job.run()

    assert code == 0, said
    assert "30 of 30 answered" in said
    assert str(job.out) in said.replace(" ", "") or job.out.name in said
    assert job.answers().keys() == {f"r-{i}" for i in range(30)}
    incremental = list((tmp_path / "data" / "incremental").glob("*.jsonl"))
    assert [path.read_bytes() for path in incremental] == [job.out.read_bytes()]
    assert code_again == 0
    assert "Nothing is left to do" in said_again
    assert set(witness.seen.values()) == {1}


def test_results_that_were_lost_are_written_again_without_running_anything(tmp_path: Path) -> None:
    with Witness() as witness:
        job = Job(tmp_path, witness.url, questions(5))
        job.run()
        first = job.out.read_bytes()
        job.out.unlink()

        code, _ = job.run()

    assert code == 0
    assert job.out.read_bytes() == first
    assert set(witness.seen.values()) == {1}


def test_a_job_killed_in_the_middle_goes_on_and_runs_nothing_answered_twice(tmp_path: Path) -> None:
    with Witness(seconds=0.1, most=100) as witness:
        job = Job(tmp_path, witness.url, questions(200))
        with job.start() as process:
            witness.wait_for(100)
            process.kill()
            process.communicate()
        witness.answer_more()

        code, said = job.run()

    assert code == 0, said
    assert "Going on with" in said
    assert job.answers().keys() == {f"r-{i}" for i in range(200)}
    assert max(witness.seen.values()) <= 2
    assert sum(n == 2 for n in witness.seen.values()) <= 50


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_job_says_how_to_go_on_and_does(tmp_path: Path, number: signal.Signals) -> None:
    with Witness(seconds=0.1, most=100) as witness:
        job = Job(tmp_path, witness.url, questions(200))
        with job.start() as process:
            witness.wait_for(100)
            os.kill(process.pid, number)
            witness.answer_more()
            _, said = process.communicate(timeout=180)
        code, _ = job.run()

    assert process.returncode == 130
    assert "go on" in said
    assert "Traceback" not in said
    assert code == 0
    assert job.answers().keys() == {f"r-{i}" for i in range(200)}
    assert set(witness.seen.values()) == {1}


def test_a_server_named_in_the_environment_gives_way_to_one_in_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OVERNIGHT_SERVER", "http://127.0.0.1:9")
    with Witness() as witness:
        job = Job(tmp_path, witness.url, questions(2))
        code, said = job.run()
        for option in ("--upstream", "--upstream-slots"):
            at = job.command.index(option)
            del job.command[at : at + 2]
        without, said_without = job.run("--again")

    assert code == 0, said
    assert len(job.answers()) == 2
    assert without == 3
    assert "127.0.0.1:9" in said_without


def test_a_job_under_nohup_goes_on_when_its_terminal_closes(tmp_path: Path) -> None:
    with Witness(seconds=0.1, most=30) as witness:
        job = Job(tmp_path, witness.url, questions(100))
        job.command = ["nohup", *job.command]
        with job.start() as process:
            witness.wait_for(30)
            os.kill(process.pid, signal.SIGHUP)
            witness.answer_more()
            process.communicate(timeout=180)

    assert process.returncode == 0
    assert len(job.answers()) == 100


def test_a_run_whose_upstream_is_dead_names_it() -> None:
    dead, other = (SimpleNamespace(name=f"http://{name}/v1", blocked="server_unreachable") for name in "ab")
    process: Any = SimpleNamespace(routes=[dead, other])

    why = Server.why_waiting(process)
    other.blocked = "server_busy"

    assert why == "http://a/v1, http://b/v1 cannot be reached or fails"
    assert Server.why_waiting(process) == "the model server refuses more requests for now"


def test_what_a_run_waits_for_is_said_once_where_no_line_shows_it(capfd: pytest.CaptureFixture[str]) -> None:
    nobody: Any = None
    following = Following(nobody, None, nobody, nobody)

    for cause, now in (("a", 0.0), ("a", 4.9), (None, 5.0), ("a", 6.0), ("b", 7.0), ("b", 12.0), ("b", 13.0)):
        following.tell_waiting(cause, now)

    assert capfd.readouterr().err == "Waiting: b. It goes on by itself as soon as that is over.\n"


def test_a_job_with_a_failed_request_ends_with_1_and_has_its_error_line(tmp_path: Path) -> None:
    with Witness() as witness:
        job = Job(tmp_path, witness.url, [chat("good", "hi"), chat("bad", "[status 400] no")])
        code, said = job.run()

    assert code == 1
    assert "1 of 2 answered" in said
    assert job.answers()["bad"]["error"]["code"] == "invalid_request"


def test_a_job_with_bad_lines_is_refused_whole_with_their_lines(tmp_path: Path) -> None:
    with Witness() as witness:
        job = Job(tmp_path, witness.url, [chat("a", "hi"), chat("a", "again"), chat("b", "x", stream=True)])
        code, said = job.run()

    assert code == 1
    assert "duplicate_custom_id" in said
    assert "streaming_not_supported" in said
    assert not job.out.exists()
    assert witness.seen.total() == 0


def test_an_output_of_other_origin_is_not_overwritten_unless_told(tmp_path: Path) -> None:
    with Witness() as witness:
        job = Job(tmp_path, witness.url, questions(2))
        job.out.write_text("precious\n")

        refused, said = job.run()
        kept = job.out.read_text()
        done, _ = job.run("--overwrite")

    assert (refused, kept) == (3, "precious\n")
    assert "--overwrite" in said
    assert done == 0
    assert len(job.answers()) == 2


def test_another_batch_in_the_same_database_is_left_alone(tmp_path: Path) -> None:
    """It may be meant for another server: only its own command may send it anywhere."""
    with Witness(seconds=0.2, most=20) as first, Witness() as second:
        unfinished = Job(tmp_path, first.url, [chat(f"u-{i}", f"unfinished {i}") for i in range(100)])
        with unfinished.start() as process:
            first.wait_for(20)
            process.kill()
            process.communicate()
        other = tmp_path / "other"
        other.mkdir()
        job = Job(other, second.url, questions(10))
        job.command[job.command.index("--data-dir") + 1] = str(tmp_path / "data")

        code, _ = job.run()

    assert code == 0
    assert set(second.seen) == {f"question {i}" for i in range(10)}


@pytest.mark.parametrize(
    ("content", "says"),
    [("", "holds no request"), ("not json\n", "no readable url"), ("{}\n", "no readable url")],
)
def test_a_file_that_is_no_input_is_refused_before_anything_starts(tmp_path: Path, content: str, says: str) -> None:
    started = time.time()
    job = Job(tmp_path, "http://127.0.0.1:9/v1", [])
    job.file.write_text(content)

    code, said = job.run()

    assert code == 1
    assert says in said
    assert not (tmp_path / "data").exists()
    assert started


def test_a_model_that_cannot_be_loaded_ends_the_command_with_the_reason(tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF" + bytes(200))
    job = Job(tmp_path, "http://unused/v1", questions(1))
    at = job.command.index("--upstream")
    job.command[at : at + 2] = ["--model", str(broken)]

    code, said = job.run()

    assert code == 3
    assert "broken.gguf" in said.replace(" ", "")
    assert "Traceback" not in said


def test_a_file_of_other_content_is_never_taken_for_the_results(tmp_path: Path) -> None:
    with Witness() as witness:
        job = Job(tmp_path, witness.url, questions(5))
        job.run()
        whole = job.out.read_bytes()
        job.out.write_bytes(whole[: len(whole) // 2])

        code, said = job.run()

    assert code == 0
    assert "Nothing is left to do" in said
    assert job.out.read_bytes() == whole
    assert set(witness.seen.values()) == {1}


def test_the_same_job_given_twice_at_once_runs_once(tmp_path: Path) -> None:
    with Witness(seconds=600) as witness:
        job = Job(tmp_path, witness.url, questions(20))
        with job.start() as first:
            witness.wait_for(8)
            code, said = job.run()
            witness.go_on()
            first.communicate(timeout=180)

    assert first.returncode == 0
    assert code == 3
    assert "being run already" in said
    assert set(witness.seen.values()) == {1}


def test_a_job_that_is_run_anew_and_interrupted_goes_on_with_the_new_one(tmp_path: Path) -> None:
    with Witness(seconds=0.1, most=140) as witness:
        job = Job(tmp_path, witness.url, questions(100))
        job.run()
        with job.start("--again") as process:
            witness.wait_for(140)
            os.kill(process.pid, signal.SIGINT)
            witness.answer_more()
            process.communicate(timeout=180)

        code, said = job.run("--again")

    assert code == 0, said
    assert "Going on with" in said
    assert set(witness.seen.values()) == {2}


@pytest.mark.parametrize(
    ("options", "code", "says"),
    [
        (["--log-level", "loud"], 2, "--log-level"),
        (["--param", "temperature=nan"], 2, "finite"),
        (["-o", "/dev/null"], 3, "not a file"),
        (["-o", "/no/such/folder/out.jsonl"], 3, "does not exist"),
        (["-o", "/proc/out.jsonl"], 3, "/proc/out.jsonl cannot be written"),
        (["-o", "/tmp/" + "x" * 240], 3, "File name too long"),
        (["-o", "-", "--json"], 2, "--output"),
        (["--again", "--retry-failed"], 2, "--again"),
        (["/no/such/file.jsonl"], 2, "does not exist"),
        (["/no/such/*.jsonl"], 2, "No file matches"),
        (["/tmp"], 2, "is a folder"),
    ],
)
def test_what_cannot_work_is_said_before_anything_runs(
    tmp_path: Path, options: list[str], code: int, says: str
) -> None:
    job = Job(tmp_path, "http://127.0.0.1:9/v1", questions(1))

    ended, said = job.run(*options)

    assert ended == code
    assert says in said
    assert "Traceback" not in said
    assert not (tmp_path / "data").exists()
