"""A server for commands, and a shell to give them in."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from overnight.cli.app import run
from tests.process import Served
from tests.witness import Witness


@pytest.fixture(scope="module")
def witness() -> Iterator[Witness]:
    with Witness() as upstream:
        yield upstream


@pytest.fixture(scope="module")
def service(witness: Witness, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with Served(tmp_path_factory.mktemp("service"), "--upstream", witness.url) as served:
        yield served


class Shell:
    """Gives commands for one server and reads what they say."""

    def __init__(self, service: Served, capfd: pytest.CaptureFixture[str]) -> None:
        self.service = service
        self.capfd = capfd
        self.said: list[str] = []
        """The lines that the last command wrote to standard error."""

    def __call__(self, *words: str | Path) -> tuple[int, str, str]:
        self.capfd.readouterr()
        code = run([*map(str, words), "--server", self.service.url])
        out, err = self.capfd.readouterr()
        self.said = err.splitlines()
        return code, out, " ".join(err.split())


@pytest.fixture
def shell(service: Served, capfd: pytest.CaptureFixture[str]) -> Shell:
    return Shell(service, capfd)


def write(path: Path, lines: Iterable[dict[str, Any]]) -> Path:
    """Write requests to a file, or to `in.jsonl` in a folder."""
    path = path / "in.jsonl" if path.is_dir() else path
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    return path
