"""Commands in terminals that cannot show every character, and in pipes."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from overnight.cli import main, output
from overnight.cli.streams import show_all_characters


def ascii_terminal(monkeypatch: pytest.MonkeyPatch) -> io.BytesIO:
    """Make standard output one that takes ASCII only; return what is written there."""
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, "ascii", write_through=True))
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    show_all_characters()
    return written


@pytest.mark.parametrize(("text", "shown"), [("1 – 2 …", b"1 - 2 ..."), ("█░ ━", b"#. -"), ("naïve 界", b"na?ve ?")])
def test_a_character_that_cannot_be_shown_is_replaced(monkeypatch: pytest.MonkeyPatch, text: str, shown: bytes) -> None:
    terminal = ascii_terminal(monkeypatch)
    sys.stdout.write(text)
    assert terminal.getvalue() == shown


@pytest.mark.parametrize("write", [output.as_json, output.as_line])
def test_json_loses_nothing_in_such_a_terminal(monkeypatch: pytest.MonkeyPatch, write: Any) -> None:
    terminal = ascii_terminal(monkeypatch)
    write({"says": "naïve 界"})
    assert json.loads(terminal.getvalue()) == {"says": "naïve 界"}


def test_a_reader_that_goes_away_ends_a_command_without_a_traceback() -> None:
    command = [sys.executable, "-m", "overnight", "--help"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, "PYTHONIOENCODING": "ascii"}
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""


def test_a_name_that_is_no_text_is_escaped_for_programs(capfd: pytest.CaptureFixture[str]) -> None:
    output.as_json({"output": "ü\udcff"})
    output.as_line({"output": "ü"})

    escaped, plain = capfd.readouterr().out.rstrip().rsplit("\n", 1)
    assert json.loads(escaped) == {"output": "ü\udcff"}
    assert plain == '{"output": "ü"}'


def test_what_was_closed_is_opened_to_nowhere_so_that_nothing_else_gets_its_number() -> None:
    code = (
        "import os, sys\n"
        "from overnight.cli.streams import open_closed\n"
        "open_closed()\n"
        "print('said', file=sys.stderr, flush=True)\n"
        "assert os.path.sameopenfile(2, os.open(os.devnull, os.O_RDONLY))\n"
        "assert os.open(os.devnull, os.O_RDONLY) > 2\n"
    )
    done = subprocess.run([sys.executable, "-c", code], preexec_fn=lambda: os.close(2), stdout=subprocess.PIPE)
    assert (done.returncode, done.stdout) == (0, b"")


def test_a_run_whose_standard_error_is_closed_says_nothing_and_ends_as_ever(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").touch()
    words: list[str | Path] = [
        "run",
        tmp_path / "in.jsonl",
        "-o",
        tmp_path / "no" / "out",
        "--data-dir",
        tmp_path / "data",
    ]
    done = subprocess.run(
        [sys.executable, "-m", "overnight", *words], preexec_fn=lambda: os.close(2), stdout=subprocess.PIPE
    )
    assert (done.returncode, done.stdout) == (3, b"")


def test_ctrl_c_before_a_command_has_begun_is_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupted:
        def __getattr__(self, _: str) -> object:
            raise KeyboardInterrupt

    monkeypatch.setitem(sys.modules, "overnight.cli.app", Interrupted())
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 130
