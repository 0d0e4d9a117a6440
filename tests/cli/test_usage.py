"""What is said to a command that cannot be read."""

from __future__ import annotations

import shlex

import pytest

from overnight.cli.app import run


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("list --limit 0", "--limit must be at least 1."),
        ("serve --port x", "--port must be a whole number."),
        ("watch --every soon", "--every must be a number."),
        ("serve --engine none", "--engine: 'none' is not one of 'llama.cpp', 'vllm'."),
        ("show", "BATCH is missing."),
        ("submit", "FILE is missing."),
        ("run in.jsonl", "--output is missing."),
        ("list --foo", "No such option: --foo."),
        ("foo", "No such command 'foo'."),
        ("list more words", "There is no place for more words."),
        ("submit nowhere.jsonl", "'nowhere.jsonl' does not exist."),
        ("submit --param top_k=many nowhere.jsonl", "--param: 'many' is not a number."),
        ("list --server ftp://x", "--server: 'ftp://x' is no address of a server, such as http://127.0.0.1:10900."),
        (
            "run in.jsonl -o x --server http://",
            "--server: 'http://' is no address of a server, such as http://127.0.0.1:10900.",
        ),
        ("submit --window 1d nowhere.jsonl", "--window: '1d' is no number of hours, such as 24h."),
        ("run in.jsonl -o x --window 0h", "--window: '0h' is no number of hours, such as 24h."),
        ("run in.jsonl -o x --window 999h", "--window: '999h' is longer than a window can be, which is 168h."),
        (
            "run in.jsonl -o x --server http://x --data-dir d --max-context-length 70 --model m",
            "--model: it is for a server that is started here; leave it out, or leave --server out.",
        ),
        (
            "run in.jsonl -o x --server http://x --max-pool-size 64000",
            "--max-pool-size: it is for a server that is started here; leave it out, or leave --server out.",
        ),
        (
            "run in.jsonl -o x --server http://x --database-url postgresql://x",
            "--database-url: it is for a server that is started here; leave it out, or leave --server out.",
        ),
        (
            "submit --endpoint /v1/foo nowhere.jsonl",
            "--endpoint: '/v1/foo' is none of /v1/chat/completions, /v1/completions, /v1/embeddings.",
        ),
        (
            "list --status foo",
            "--status: 'foo' is none of validating, in_progress, finalizing, completed, expired, failed, cancelling,"
            " cancelled.",
        ),
        ("run '' -o x", "FILE: the name of a file is empty."),
        ("submit ''", "FILE: the name of a file is empty."),
        ("show ''", "BATCH: the id is empty."),
        ("cancel ' '", "BATCH: the id is empty."),
        ("watch ''", "BATCH: the id is empty."),
        ("results '' -o x", "BATCH: the id is empty."),
        ("settings set BATCH_ENABLED maybe", "BATCH_ENABLED must be on or off, not 'maybe'."),
    ],
)
def test_wrong_usage_is_one_plain_sentence_and_where_to_read_on(
    command: str, says: str, capfd: pytest.CaptureFixture[str]
) -> None:
    code = run(shlex.split(command))

    out, err = capfd.readouterr()
    group = " ".join(word for word in command.split()[:2] if word in ("settings", "set")) or command.split()[0]
    place = "overnight" if group == "foo" else f"overnight {group}"
    assert (code, out) == (2, "")
    assert err.splitlines() == [f"error: {says}", f"See: {place} --help"]


def test_a_group_that_is_given_nothing_shows_its_commands(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["files"]) == 2
    assert "download" in "".join(capfd.readouterr())


@pytest.mark.parametrize("command", ["show", "download", "delete"])
def test_an_empty_id_of_a_file_is_wrong_usage(command: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["files", command, ""]) == 2
    assert capfd.readouterr().err.startswith("error: FILE: the id is empty.")


@pytest.mark.parametrize("words", [["show", "batch_\udcff"], ["list", "--find", "\udcff"]])
def test_bytes_that_are_no_text_are_wrong_usage(words: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    assert run([*words, "--server", "http://127.0.0.1:9"]) == 2
    assert "no text in UTF-8" in capfd.readouterr().err


def test_an_option_of_an_own_server_beside_one_that_a_variable_names_is_wrong_usage(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OVERNIGHT_SERVER", "http://127.0.0.1:9")
    assert run(["run", "in.jsonl", "-o", "x", "--max-context-length", "512"]) == 2
    says = "--max-context-length: it is for a server that is started here; leave it out, or unset $OVERNIGHT_SERVER."
    assert capfd.readouterr().err.splitlines()[0] == f"error: {says}"


def test_an_id_that_is_too_long_for_an_address_is_wrong_usage(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["show", "batch_" * 20_000, "--server", "http://127.0.0.1:9"]) == 2
    assert capfd.readouterr().err == "error: An argument cannot stand in an address: URL too long.\n"
