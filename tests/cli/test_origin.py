"""What is done about a file that stands where the results of a job are to go."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from overnight.cli.inputs import Input
from overnight.cli.job import Job, Task
from overnight.cli.origin import refuse_other_files
from overnight.domain.errors import Unusable
from tests.cli.conftest import Shell, write
from tests.process import chat
from tests.witness import Witness

CHAT = "/v1/chat/completions"
RESULT = '{"id": "x", "custom_id": "a", "response": null, "error": {}}\n'


@pytest.fixture(autouse=True)
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("overnight.cli.follow.LOOK_EVERY", 0.05)


def job_of(folder: Path, *, overwrite: bool = False) -> Job:
    file = write(folder / "in.jsonl", [chat(name, "x") for name in "abc"])
    task = Task(Input("in.jsonl", file), CHAT, folder / "out", "mark")
    return Job((task,), "24h", {}, again=False, overwrite=overwrite, retry_failed=False, ordered=False)


@pytest.mark.parametrize(
    "held",
    [
        "",
        RESULT,
        RESULT * 3,
        RESULT + RESULT.replace('"a"', '"c"').rstrip(),
        RESULT + RESULT[:20],
        RESULT.replace("\n", "\r\n") + "\n" + RESULT,
    ],
    ids=["nothing", "one", "several", "no line end", "cut", "other line ends"],
)
def test_results_of_the_job_are_known_as_its_own(tmp_path: Path, held: str) -> None:
    (tmp_path / "out").write_bytes(held.encode())
    refuse_other_files(job_of(tmp_path))


@pytest.mark.parametrize(
    ("held", "line"),
    [
        ("my precious notes\n", 1),
        ("my precious notes", 1),
        (RESULT + RESULT.replace('"a"', '"z"'), 2),
        (RESULT + RESULT.replace('"a"', '"z"').rstrip(), 2),
        (RESULT + "\n" + json.dumps(chat("b", "a request")) + "\n", 3),
        (RESULT + RESULT[:20] + "\n" + RESULT, 2),
        (RESULT * 12_000 + "[]\n", 12_001),
        (RESULT + '"\xff"\n', 2),
        ("[" * 100_000 + "]" * 100_000, 1),
    ],
    ids=[
        "notes",
        "notes, no line end",
        "stranger",
        "stranger at the end",
        "request",
        "cut within",
        "late",
        "bytes",
        "deep",
    ],
)
def test_a_file_with_another_line_is_refused_by_its_number_and_replaced_when_told(
    tmp_path: Path, held: str, line: int
) -> None:
    (tmp_path / "out").write_bytes(held.encode("latin-1"))
    with pytest.raises(Unusable, match=f"its line {line:,} is no result of this job's requests"):
        refuse_other_files(job_of(tmp_path))
    refuse_other_files(job_of(tmp_path, overwrite=True))


def test_a_line_without_end_is_not_held_in_memory(tmp_path: Path) -> None:
    with (tmp_path / "out").open("wb") as file:
        file.truncate(40 << 20)
    with pytest.raises(Unusable, match="its line 1 is no result"):
        refuse_other_files(job_of(tmp_path))


def test_what_was_put_in_the_place_of_the_results_is_kept(shell: Shell, witness: Witness, tmp_path: Path) -> None:
    files = [write(tmp_path / f"{name}.jsonl", [chat(name, f"origin {name}")]) for name in "ab"]
    out = tmp_path / "out"
    common = ("-o", out, "--data-dir", tmp_path / "data")
    assert shell("run", *files, *common)[0] == 0
    both = out.read_bytes()

    fewer, _, said = shell("run", files[0], *common)
    again, _, _ = shell("run", files[0], *common, "--again")
    kept = out.read_bytes()
    out.write_text("my precious notes\n")
    notes, _, said_notes = shell("run", *files, *common)
    precious = out.read_text()
    told, _, _ = shell("run", *files, *common, "--overwrite")

    assert (fewer, again, kept) == (3, 3, both)
    assert "no result of this job's requests" in said
    assert (notes, precious) == (3, "my precious notes\n")
    assert "its line 1 is no result" in said_notes
    assert (told, sorted(out.read_bytes().splitlines())) == (0, sorted(both.splitlines()))
    assert [witness.seen[f"origin {name}"] for name in "ab"] == [1, 1]


def test_an_empty_file_may_be_written_over(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "out").touch()
    file = write(tmp_path, [chat("a", "into an empty file")])

    code, _, said = shell("run", file, "-o", tmp_path / "out", "--data-dir", tmp_path / "data")

    assert (code, "1 of 1 answered" in said) == (0, True), said
