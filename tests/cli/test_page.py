"""The page about the command line, the codes it ends with, and what a shell completes."""

from __future__ import annotations

from pathlib import Path

import pytest

from overnight.cli.app import EXIT_CODES, app, run
from tools import cli_page


def test_the_page_is_that_of_the_commands() -> None:
    assert cli_page.PAGE.read_text("utf-8") == cli_page.page(), "run: python -m tools.cli_page"


def test_every_command_and_option_says_what_it_is_for() -> None:
    for name, command in cli_page.commands():
        assert command.help, name
        options = [p for p in command.params if p.param_type_name == "option"]
        assert all(option.help for option in options), name


def test_every_command_speaks_to_programs_but_the_one_that_only_logs() -> None:
    silent = [
        name for name, command in cli_page.commands() if not any("--json" in option.opts for option in command.params)
    ]
    assert silent == ["overnight serve"]


GONE = ("--server", "http://127.0.0.1:9")
CODES: dict[int, list[tuple[str, ...]]] = {
    0: [("--version",), ("--help",), ("run", "--help")],
    1: [("doctor", "--upstream", "http://127.0.0.1:9/v1")],
    2: [("nonsense",), ("list", "--limit", "0"), ("show",), ("show", ""), ("results", "batch_1", "--json")],
    3: [
        ("models", *GONE),
        ("watch", "--once", *GONE),
        ("watch", "--once", "--json", *GONE),
        ("results", "batch_1", "-o", "/no/such/folder/out", *GONE),
    ],
    130: [("list", *GONE)],
}
"""Commands for each exit code; those for 130 are interrupted."""


@pytest.mark.parametrize("code", EXIT_CODES)
def test_commands_end_with_the_codes_that_are_documented(
    code: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setenv("OVERNIGHT_DATA_DIR", str(tmp_path))
    if code == 130:
        monkeypatch.setattr("overnight.cli.list_.client", interrupted)

    assert [(words, run(list(words))) for words in CODES[code]] == [(words, code) for words in CODES[code]]
    assert "Traceback" not in "".join(capfd.readouterr())
    assert f"| {code} | {EXIT_CODES[code]} |" in cli_page.PAGE.read_text("utf-8")


def test_no_other_codes_are_documented() -> None:
    assert list(EXIT_CODES) == list(CODES)


def test_a_shell_is_told_how_to_complete(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    # Which shell it is for is found out from the processes above, of which none need be a shell.
    monkeypatch.setattr("shellingham.detect_shell", lambda: ("bash", "/bin/bash"))
    with pytest.raises(SystemExit):
        app(["--show-completion"], prog_name="overnight")
    assert "_OVERNIGHT_COMPLETE=complete_bash" in capfd.readouterr().out
    monkeypatch.setenv("_OVERNIGHT_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "overnight wa")
    monkeypatch.setenv("COMP_CWORD", "1")
    with pytest.raises(SystemExit):
        app([], prog_name="overnight")
    assert capfd.readouterr().out.split() == ["watch"]


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        ("list --status ex", ["expired"]),
        ("files list --purpose batch_", ["batch_output"]),
        ("settings set BATCH_RET", ["BATCH_RETENTION_DAYS"]),
        ("submit --endpoint /v1/em", ["/v1/embeddings"]),
        ("run --param top_p", ["top_p="]),
        ("serve --log-level w", ["warning"]),
    ],
)
def test_values_are_completed_too(
    words: str, completed: list[str], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("_OVERNIGHT_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", f"overnight {words}")
    monkeypatch.setenv("COMP_CWORD", str(len(words.split())))
    run([])
    assert capfd.readouterr().out.split() == completed
