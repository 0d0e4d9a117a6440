"""`overnight settings` on a database: what it lists and changes, and how it ends."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import structlog

from overnight.cli.app import run
from overnight.domain.settings_table import TABLE

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def settings(
    store_url: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Command:
    """Gives `overnight settings …` on one database; returns exit code, output, and what was said."""
    monkeypatch.setenv("OVERNIGHT_DATABASE_URL", store_url)
    monkeypatch.setenv("OVERNIGHT_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "250")

    def command(*words: str) -> tuple[int, str, str]:
        capfd.readouterr()
        code = run(["settings", *words])
        out, err = capfd.readouterr()
        return code, out, " ".join(err.split())

    return command


def test_settings_are_listed_set_and_set_back(settings: Command) -> None:
    code, table, _ = settings()
    assert code == 0
    assert all(setting.name in table for setting in TABLE)

    code, _, said = settings("set", "BATCH_MAX_REQUESTS", "70000", "BATCH_ENABLED", "off")
    assert (code, said) == (
        0,
        "BATCH_MAX_REQUESTS is 70,000 requests. BATCH_ENABLED is off. Every process takes it over within ten seconds.",
    )
    listed = {one["name"]: one for one in json.loads(settings("--json")[1])}
    assert len(listed) == len(TABLE)
    assert listed["BATCH_ENABLED"]["value"] is False
    assert listed["BATCH_MAX_REQUESTS"] == {
        "name": "BATCH_MAX_REQUESTS",
        "value": 70_000,
        "default": 50_000,
        "type": "number",
        "least": 1,
        "most": 100_000_000,
        "unit": "requests",
        "description": listed["BATCH_MAX_REQUESTS"]["description"],
    }

    code, changed, said = settings("set", "BATCH_MAX_REQUESTS", "80000", "BATCH_ENABLED", "off", "--json")
    assert (code, said) == (0, "")
    assert [(one["name"], one["value"]) for one in json.loads(changed)] == [
        ("BATCH_MAX_REQUESTS", 80_000),
        ("BATCH_ENABLED", False),
    ]
    for words in (("reset", "BATCH_MAX_REQUESTS", "--json"), ("--json", "reset", "BATCH_MAX_REQUESTS")):
        assert [one["value"] for one in json.loads(settings(*words)[1])] == [50_000]
    settings("set", "BATCH_MAX_REQUESTS", "70000")

    assert settings("reset", "BATCH_MAX_REQUESTS", "BATCH_MODEL_CONCURRENCY")[0] == 0
    listed = {one["name"]: one["value"] for one in json.loads(settings("--json")[1])}
    assert (listed["BATCH_MAX_REQUESTS"], listed["BATCH_ENABLED"]) == (50_000, False)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("set", "BATCH_MAX_REQUESTS", "5", "BATCH_ENABLED", "maybe"), "BATCH_ENABLED must be on or off"),
        (("set", "BATCH_MAX_REQUESTS", "5", "BATCH_RETENTION_DAYS", "0"), "whole number from 1 to 3,650"),
        (("set", "BATCH_MAX_REQUESTS", "5", "BATCH_NOTHING", "1"), "There is no setting 'BATCH_NOTHING'"),
        (("set", "BATCH_MAX_REQUESTS", "5", "BATCH_ENABLED"), "BATCH_ENABLED has no value"),
        (("set", "BATCH_MAX_REQUESTS", "5", "BATCH_MAX_REQUESTS", "6"), "given twice"),
        (("reset", "BATCH_MAX_REQUESTS", "BATCH_NOTHING"), "There is no setting 'BATCH_NOTHING'"),
    ],
)
def test_one_value_that_cannot_be_taken_changes_nothing_and_ends_with_2(
    settings: Command, words: tuple[str, ...], says: str
) -> None:
    settings("set", "BATCH_MAX_REQUESTS", "4")
    code, _, said = settings(*words)
    assert code == 2
    assert says in " ".join(said.replace("│", " ").split())
    listed = {one["name"]: one["value"] for one in json.loads(settings("--json")[1])}
    assert listed["BATCH_MAX_REQUESTS"] == 4


def test_what_is_logged_while_the_database_is_made_is_not_among_the_settings(
    database_url: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    structlog.reset_defaults()

    code = run(["settings", "--json", "--database-url", database_url, "--data-dir", str(tmp_path)])

    out, err = capfd.readouterr()
    assert (code, len(json.loads(out))) == (0, len(TABLE))
    assert "schema applied=" in err
