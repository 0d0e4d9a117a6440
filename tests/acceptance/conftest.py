"""The product as its users have it: `overnight serve` in a process of its own, in front of a model server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import openai
import pytest

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


@pytest.fixture
def sdk(service: Served) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{service.url}/v1", api_key="unused") as client:
        yield client


@pytest.fixture
def jsonl(tmp_path: Path) -> Path:
    return tmp_path / "requests.jsonl"
