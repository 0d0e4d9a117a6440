"""The commands around a server: what they print, for people and for programs, and how they end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from overnight.cli.app import run
from overnight.cli.show import tell_models
from overnight.client import BadRequest, Client, ConnectionFailed, ServerFault
from overnight.store.migrate import known
from tests.cli.conftest import Shell, write
from tests.process import Served, chat
from tests.witness import Witness


def submitted(shell: Shell, folder: Path, lines: list[dict[str, Any]], *options: str) -> str:
    code, out, _ = shell("submit", str(write(folder, lines)), *options)
    assert code == 0
    return out.strip()


def test_submit_prints_the_id_and_watch_follows_it_to_its_end(shell: Shell, tmp_path: Path) -> None:
    batch = submitted(shell, tmp_path, [chat(f"c-{i}", f"hi {i}") for i in range(3)])

    code, out, err = shell("watch", batch, "--every", "0.2")

    assert batch.startswith("batch_")
    assert code == 0
    assert "completed" in out
    assert "overnight results" in err


def test_a_file_with_problems_is_refused_with_them_and_the_others_are_handed_over(shell: Shell, tmp_path: Path) -> None:
    bad = write(tmp_path / "bad.jsonl", [chat("a", "hi"), *(chat("a", "again") for _ in range(22))])
    good = write(tmp_path / "good.jsonl", [chat("a", "hi")])
    before = shell.service.get("/v1/files?purpose=batch&limit=1")["data"][:1]

    code, _, err = shell("submit", bad)
    after = shell.service.get("/v1/files?purpose=batch&limit=1")["data"][:1]
    both, out, _ = shell("submit", bad, good)

    assert (code, both) == (1, 1)
    for told in ("bad.jsonl was refused", "22 problems", "duplicate_custom_id", "and 2 more"):
        assert told in err
    assert before == after
    assert shell.service.wait(out.strip())["request_counts"]["total"] == 1


def test_programs_hear_of_every_file_that_was_handed_over_or_refused(shell: Shell, tmp_path: Path) -> None:
    other = chat("a", "hi") | {"url": "/v1/embeddings", "body": {"model": "test-model", "input": "hi"}}
    files = [
        write(tmp_path / "twice.jsonl", [chat("a", "hi"), chat("a", "again")]),
        write(tmp_path / "unread.jsonl", [{"custom_id": "a"}]),
        write(tmp_path / "one\udcff.jsonl", [chat("a", "hi")]),
        write(tmp_path / "other.jsonl", [other]),
    ]

    code, out, said = shell("submit", *files, "--json")

    told = [json.loads(line) for line in out.splitlines()]
    assert code == 1
    assert [(one["input"], one["batch"] is None, one["error"] is None) for one in told] == [
        ("twice.jsonl", True, False),
        ("unread.jsonl", True, False),
        ("one?.jsonl", False, True),
        ("other.jsonl", False, True),
    ]
    assert told[0]["error"]["problems"]["first"][0]["code"] == "duplicate_custom_id"
    assert told[2]["batch"]["request_counts"]["total"] == 1
    assert told[3]["batch"]["endpoint"] == "/v1/embeddings"
    for refused in ("twice.jsonl was refused", "unread.jsonl was refused", "no readable url"):
        assert refused in said


@pytest.mark.parametrize(
    ("line", "options", "says"),
    [
        (chat("a", "hi"), ["--endpoint", "/v1/embeddings"], "mismatched_endpoint"),
        (chat("a", "hi", model="nobody-s"), [], "Requests may name: other-model, test-model"),
    ],
)
def test_what_the_server_finds_only_when_it_checks_the_batch_refuses_the_file(
    shell: Shell, tmp_path: Path, line: dict[str, Any], options: list[str], says: str
) -> None:
    def newest() -> list[str | None]:
        # Result files of what other tests left running may come at any time.
        return [
            shell.service.get(f"/v1/{things}limit=1")["first_id"] for things in ("files?purpose=batch&", "batches?")
        ]

    before = newest()
    code, out, said = shell("submit", write(tmp_path, [line]), *options)
    programs, told, _ = shell("submit", tmp_path / "in.jsonl", *options, "--json")

    assert (code, out, programs) == (1, "", 1)
    assert ("in.jsonl was refused" in said, says in said) == (True, True), said
    found = json.loads(told)
    assert (found["batch"], found["error"]["problems"]["count"]) == (None, 1)
    assert newest() == before


def test_a_batch_that_is_not_checked_in_time_counts_as_taken(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("overnight.cli.submit.CHECKED_WITHIN", 0.0)

    code, out, said = shell("submit", write(tmp_path, [chat("a", "hi", model="nobody-s")]))

    assert (code, out.startswith("batch_"), "1 request, still being checked" in said) == (0, True, True)


EMPTY, NO_JSON, NO_URL = b"", b"not json\n", b'{"custom_id": "a"}\n'
WRONG_URL = b'{"custom_id": "a", "method": "POST", "url": "/v1/nope", "body": {}}\n'


@pytest.mark.parametrize("command", ["submit", "run"])
@pytest.mark.parametrize("content", [EMPTY, b"\n \r\n", NO_JSON, NO_URL, WRONG_URL, b"\x00\xff\x89PNG", b"[" * 100_000])
def test_a_file_without_a_request_that_could_run_is_refused_by_every_command_with_1(
    shell: Shell, tmp_path: Path, command: str, content: bytes
) -> None:
    (tmp_path / "in.jsonl").write_bytes(content)
    words: list[str | Path] = ["-o", tmp_path / "out", "--data-dir", tmp_path / "data"] if command == "run" else []

    code, _, said = shell(command, tmp_path / "in.jsonl", *words)

    assert (code, "in.jsonl" in said, "Traceback" in said) == (1, True, False), said
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("command", ["submit", "run"])
def test_a_file_that_cannot_be_read_is_wrong_usage(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    # The user of the tests may be one to whom no file is forbidden.
    monkeypatch.setattr("overnight.cli.inputs.os.access", lambda *_: False)
    words = ["-o", str(tmp_path / "out")] if command == "run" else []

    code = run([command, str(write(tmp_path, [chat("a", "hi")])), *words])

    assert (code, "in.jsonl' cannot be read" in capfd.readouterr().err) == (2, True)


def test_a_file_that_the_server_refuses_does_not_keep_the_others_back(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [write(tmp_path / f"{name}.jsonl", [chat("a", f"kept {name}")]) for name in "ab"]
    create = Client.create_batch
    first = iter([BadRequest(400, "some_code", "Not this one."), ConnectionFailed("gone")])

    def refuse(c: Client, *given: Any, **named: Any) -> Any:
        error = next(first, None)
        if error is not None:
            raise error
        return create(c, *given, **named)

    monkeypatch.setattr(Client, "create_batch", refuse)

    code, out, said = shell("submit", files[0], "--json")
    assert (code, json.loads(out)["error"]["code"], "Not this one." in said) == (1, "some_code", True)
    code, out, said = shell("submit", *files, "--json")
    assert (code, json.loads(out)["error"]["message"], "gone" in said) == (3, "gone", True)
    first = iter([ServerFault(504, None, "Gateway timeout.")])
    code, out, said = shell("submit", *files)
    assert (code, out, "Gateway timeout." in said, "refused" in said) == (3, "", True, False)
    first = iter([BadRequest(400, "some_code", "Not this one.")])
    code, out, said = shell("submit", *files)
    assert (code, out.startswith("batch_"), "a.jsonl was refused" in said) == (1, True, True)


@pytest.mark.parametrize("command", ["submit", "run"])
def test_an_option_that_the_server_refuses_is_wrong_usage_and_the_file_does_not_stay_there(
    shell: Shell, tmp_path: Path, command: str
) -> None:
    words: list[str | Path] = ["-o", tmp_path / "out", "--data-dir", tmp_path / "data"] if command == "run" else []
    before = shell.service.get("/v1/files?purpose=batch&limit=1")["data"][:1]

    code, _, err = shell(command, write(tmp_path, [chat("a", "hi")]), "--param", "temperature=99", *words)

    assert (code, "--param: temperature must be" in err) == (2, True)
    assert shell.service.get("/v1/files?purpose=batch&limit=1")["data"][:1] == before


@pytest.mark.parametrize("command", ["submit", "run"])
def test_a_window_that_the_server_does_not_allow_is_wrong_usage_and_not_the_files_fault(
    shell: Shell, tmp_path: Path, command: str
) -> None:
    words: list[str | Path] = ["-o", tmp_path / "out", "--data-dir", tmp_path / "data"] if command == "run" else []
    before = shell.service.get("/v1/files?purpose=batch&limit=1")["data"][:1]

    code, out, err = shell(command, write(tmp_path, [chat("a", "hi")]), "--window", "none", *words)

    assert (code, out) == (2, "")
    assert "--window: completion_window may be 'none' only where the operator has lifted it." in err
    assert "in.jsonl" not in err
    assert shell.service.get("/v1/files?purpose=batch&limit=1")["data"][:1] == before


def test_watch_ends_with_1_where_a_request_was_not_answered(shell: Shell, tmp_path: Path) -> None:
    batch = submitted(shell, tmp_path, [chat("bad", "[status 400] no")])

    code, out, _ = shell("watch", batch, "--every", "0.2")

    assert code == 1
    assert "1 failed" in out


def test_list_and_show_speak_to_people_and_to_programs(shell: Shell, tmp_path: Path) -> None:
    batch = submitted(shell, tmp_path, [chat("one", "hi")], "--metadata", "team=blue", "--param", "temperature=0.3")
    shell("watch", batch, "--every", "0.2")

    _, table, _ = shell("list")
    _, listed, _ = shell("list", "--json")
    _, shown, _ = shell("show", batch)
    _, found, _ = shell("show", batch, "--json")

    assert batch in table
    assert "1/1" in table
    assert json.loads(listed)["data"][0]["id"] == batch
    assert "test-model" in shown
    assert json.loads(found)["metadata"] == {"team": "blue"}
    assert json.loads(found)["temperature"] == 0.3


def test_results_go_to_standard_output_or_to_a_file_errors_included(shell: Shell, tmp_path: Path) -> None:
    batch = submitted(shell, tmp_path, [chat("good", "hi"), chat("bad", "[status 400] no")])
    shell("watch", batch, "--every", "0.2")

    _, printed, _ = shell("results", batch)
    _, good, _ = shell("results", batch, "--no-errors")
    code, _, said = shell("results", batch, "-o", str(tmp_path / "out[final].jsonl"))

    assert (code, "out[final].jsonl" in said) == (0, True)
    assert {json.loads(line)["custom_id"] for line in printed.splitlines()} == {"good", "bad"}
    assert [json.loads(line)["custom_id"] for line in good.splitlines()] == ["good"]
    assert (tmp_path / "out[final].jsonl").read_text("utf-8") == printed
    code, out, said = shell("results", batch, "-o", tmp_path / "out", "--json")
    told = {"batch": batch, "status": "completed", "output": str(tmp_path / "out")}
    assert (code, said) == (0, "")
    assert json.loads(out) == {**told, "total": 2, "completed": 1, "failed": 1}
    code, out, said = shell("results", batch, "--json")
    assert (code, out, "--output" in said) == (2, "", True)


def test_results_of_a_batch_that_still_runs_say_how_to_wait(shell: Shell, witness: Witness, tmp_path: Path) -> None:
    batch = submitted(shell, tmp_path, [chat("slow", "[held results] hi")])

    code, _, err = shell("results", batch)
    witness.let("results")

    assert code == 3
    assert f"overnight watch {batch}" in err


def test_cancel_stops_a_batch(shell: Shell, witness: Witness, tmp_path: Path) -> None:
    batch = submitted(shell, tmp_path, [chat("slow", "[held cancel] hi")])

    code, out, _ = shell("cancel", batch)
    witness.let("cancel")

    assert code == 0
    assert batch in out
    assert "cancel" in out
    assert shell.service.wait(batch)["status"] == "cancelled"


def test_a_batch_is_paused_and_resumed(shell: Shell, witness: Witness, tmp_path: Path) -> None:
    batch = submitted(shell, tmp_path, [chat("slow", "[held pause] to be paused")])

    code, out, _ = shell("pause", batch, "--json")
    assert (code, json.loads(out)["paused"]["reason"]) == (0, "user")
    code, out, _ = shell("resume", batch)
    assert (code, batch in out) == (0, True)
    witness.let("pause")

    assert shell.service.wait(batch)["status"] == "completed"
    code, _, err = shell("pause", batch)
    assert (code, "completed" in err) == (3, True)


def test_what_a_batch_has_left_is_retried_and_the_batch_deleted(shell: Shell, tmp_path: Path) -> None:
    batch = submitted(shell, tmp_path, [chat("good", "hi"), chat("bad", "[status 400] no")])
    shell.service.wait(batch)

    code, out, said = shell("retry", batch)
    assert code == 0
    assert shell.service.wait(out.strip())["retry_of"] == batch
    assert f"Follow it with: overnight watch {out.strip()}" in said

    code, out, _ = shell("delete", batch)
    assert (code, out.split()[0]) == (0, batch)
    assert shell("show", batch)[0] == 3


def test_show_lists_the_problems_of_a_refused_file(shell: Shell, tmp_path: Path) -> None:
    batch = shell.service.submit([chat("a", "hi"), chat("a", "again")])
    shell.service.wait(batch)

    _, out, _ = shell("show", batch)

    assert "duplicate_custom_id" in out
    assert "line 1" in out


@pytest.mark.parametrize("command", ["show", "watch", "run"])
def test_a_model_that_nobody_serves_is_answered_with_those_that_are_served(
    shell: Shell, tmp_path: Path, command: str
) -> None:
    lines = [chat("a", "hi", model="nobody-s")]
    if command == "run":
        _, _, err = shell("run", write(tmp_path, lines), "-o", tmp_path / "out", "--data-dir", tmp_path / "data")
    else:
        batch = shell.service.submit(lines)
        shell.service.wait(batch)
        _, _, err = shell(command, batch)

    assert "Requests may name: other-model, test-model" in err


def test_models_are_told_with_their_aliases_and_not_without_end(capfd: pytest.CaptureFixture[str]) -> None:
    tell_models([{"id": f"m{i}", "aliases": ["gpt"] if i == 0 else []} for i in range(7)])
    tell_models([])

    first, none = capfd.readouterr().err.splitlines()
    assert first == "Requests may name: m0 (also gpt), m1, m2, m3, m4 … and 2 more"
    assert "lists a model now" in none


def test_an_unknown_batch_is_one_sentence_and_exit_code_3(shell: Shell) -> None:
    code, out, err = shell("show", "batch_" + "0" * 32)

    assert (code, out) == (3, "")
    assert "batch_" in err
    assert "Traceback" not in err


def test_a_server_that_is_not_there_is_said_with_what_to_do(capfd: pytest.CaptureFixture[str]) -> None:
    code = run(["list", "--server", "http://127.0.0.1:9"])

    assert code == 3
    assert "overnight serve" in capfd.readouterr().err


@pytest.mark.parametrize("pair", ["temperature", "temperature=hot", "colour=1"])
def test_a_bad_parameter_is_wrong_usage(shell: Shell, tmp_path: Path, pair: str) -> None:
    code, _, err = shell("submit", str(write(tmp_path, [chat("a", "hi")])), "--param", pair)

    assert code == 2
    assert "--param" in err


def test_doctor_says_what_is_there_and_reachable(shell: Shell, service: Served, tmp_path: Path) -> None:
    code, out, _ = shell("doctor", "--json", "--data-dir", str(tmp_path), "--upstream", "http://127.0.0.1:9/v1")

    found = {f["what"]: f for f in json.loads(out)}
    assert code == 1
    assert found["upstream"]["ok"] is False
    assert found["server"]["ok"] is True
    assert found["database"]["ok"] is True
    assert found["data directory"]["says"] == str(tmp_path)
    assert shell("doctor", "--data-dir", str(tmp_path))[0] == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("folder", "says"),
    [("/proc/x", "/proc/x cannot be made"), ("/proc", "/proc cannot be written"), ("{file}/x", "x cannot be made")],
)
def test_doctor_says_of_a_data_directory_that_it_cannot_be(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, folder: str, says: str
) -> None:
    (tmp_path / "file").touch()

    code = run(["doctor", "--json", "--data-dir", folder.format(file=tmp_path / "file")])

    (found,) = (f for f in json.loads(capfd.readouterr().out) if f["what"] == "data directory")
    assert (code, found["ok"], says in found["says"]) == (1, False, True), found


def test_doctor_misses_a_server_only_where_it_was_named(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def server(*words: str) -> tuple[int, bool | None]:
        code = run(["doctor", "--json", "--data-dir", str(tmp_path), *words])
        (found,) = (f for f in json.loads(capfd.readouterr().out) if f["what"] == "server")
        return code, found["ok"]

    dead = "http://127.0.0.1:9"
    monkeypatch.setattr("overnight.cli.connect.DEFAULT_SERVER", dead)
    monkeypatch.delenv("OVERNIGHT_SERVER", raising=False)
    assert server() == (0, None)
    assert server("--server", dead) == (1, False)
    monkeypatch.setenv("OVERNIGHT_SERVER", dead)
    assert server() == (1, False)


def test_migrate_brings_a_fresh_database_to_the_newest_schema(
    database_url: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(["migrate", "--database-url", database_url, "--data-dir", str(tmp_path)]) == 0
    assert known()[-1].name in capfd.readouterr().err
    assert run(["migrate", "--database-url", database_url, "--data-dir", str(tmp_path), "--json"]) == 0
    assert json.loads(capfd.readouterr().out) == {"schema": known()[-1].name}


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--host", "0.0.0.0"], "loopback"),
        (["--parts", "api,nonsense"], "--parts"),
        (["--upstream", "ftp://example.org"], "--upstream"),
        (["--model", "/no/such/file.gguf"], "/no/such/file.gguf"),
        (["--database-url", "postgresql://nobody@127.0.0.1:9/none", "--upstream", "http://x/v1"], "database"),
    ],
)
def test_serve_refuses_what_cannot_work_in_one_sentence(
    options: list[str], says: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    code = run(["serve", "--port", "0", "--data-dir", str(tmp_path), *options])

    err = " ".join(capfd.readouterr().err.split())
    assert code == 3
    assert says in err
    assert "Traceback" not in err
