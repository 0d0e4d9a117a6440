"""The official OpenAI SDK for Node, unchanged, drives the served product."""

from __future__ import annotations

import pytest

from tests.acceptance import node_sdk
from tests.process import Served

PROMISES = node_sdk.promises()


@pytest.fixture(scope="module")
def became(service: Served) -> dict[str, str | None]:
    return node_sdk.run(service.url)


@pytest.mark.parametrize("promise", PROMISES)
def test_with_node(became: dict[str, str | None], promise: str) -> None:
    assert became[promise] is None, became[promise]


def test_every_check_ran(became: dict[str, str | None]) -> None:
    assert list(became) == PROMISES
    assert len(PROMISES) >= 25
