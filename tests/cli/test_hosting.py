"""How options become settings."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer

from overnight.cli.app import run
from overnight.cli.hosting import settings
from tests.cli.conftest import write
from tests.process import chat


def test_how_many_requests_an_upstream_gets_is_found_unless_a_number_is_given() -> None:
    url = "http://gpu-box:8000/v1"
    assert settings(upstream=[url]).upstreams[0].slots is None
    assert settings(upstream=[url], upstream_slots=7).upstreams[0].slots == 7


def test_what_upstreams_lack_must_be_a_field_of_some_body() -> None:
    url = "http://gpu-box:8000/v1"
    (upstream,) = settings(upstream=[url], upstream_lacks=["logprobs", "messages.image_url"]).upstreams
    assert upstream.lacks == {"logprobs", "messages.image_url"}
    with pytest.raises(typer.BadParameter, match="colour"):
        settings(upstream=[url], upstream_lacks=["colour"])


def test_variables_of_an_own_server_go_with_a_named_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OVERNIGHT_DATABASE_URL", "postgresql://nobody@127.0.0.1:9/none")
    file = write(tmp_path, [chat("a", "x")])
    words = ["run", str(file), "-o", str(tmp_path / "out"), "--data-dir", str(tmp_path / "data")]

    assert run([*words, "--server", "http://127.0.0.1:9"]) == 3

    assert "Is a server running?" in capfd.readouterr().err
