"""`overnight submit` of files that are taken and files that are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from overnight.client import BadRequest, Client, ConnectionFailed
from tests.cli.conftest import Shell, write
from tests.process import chat


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
        write(tmp_path / "one.jsonl", [chat("a", "hi")]),
        write(tmp_path / "other.jsonl", [other]),
    ]

    code, out, said = shell("submit", *files, "--json")

    told = [json.loads(line) for line in out.splitlines()]
    assert code == 1
    assert [(one["input"], one["batch"] is None, one["error"] is None) for one in told] == [
        ("twice.jsonl", True, False),
        ("unread.jsonl", True, False),
        ("one.jsonl", False, True),
        ("other.jsonl", False, True),
    ]
    assert told[0]["error"]["problems"]["first"][0]["code"] == "duplicate_custom_id"
    assert told[2]["batch"]["request_counts"]["total"] == 1
    assert told[3]["batch"]["endpoint"] == "/v1/embeddings"
    for refused in ("twice.jsonl was refused", "unread.jsonl was refused", "no readable url"):
        assert refused in said


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
    first = iter([BadRequest(400, "some_code", "Not this one.")])
    code, out, said = shell("submit", *files)
    assert (code, out.startswith("batch_"), "a.jsonl was refused" in said) == (1, True, True)


@pytest.mark.parametrize(("command", "ends"), [("submit", 1), ("run", 3)])
def test_a_file_whose_batch_is_refused_does_not_stay_on_the_server(
    shell: Shell, tmp_path: Path, command: str, ends: int
) -> None:
    words: list[str | Path] = ["-o", tmp_path / "out", "--data-dir", tmp_path / "data"] if command == "run" else []
    before = shell.service.get("/v1/files?purpose=batch&limit=1")["data"][:1]

    code, _, err = shell(command, write(tmp_path, [chat("a", "hi")]), "--window", "500h", *words)

    assert (code, "168h" in err) == (ends, True)
    assert shell.service.get("/v1/files?purpose=batch&limit=1")["data"][:1] == before
