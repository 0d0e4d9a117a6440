"""A worker, a database and a model server for the tests of this room."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from overnight.domain import backoff
from overnight.store.pool import Store
from tests.scripted_upstream import Upstream, serving
from tests.worker.rig import Rig, rigged


@pytest.fixture
async def upstream() -> AsyncIterator[Upstream]:
    async with serving() as upstream:
        yield upstream


@pytest.fixture
async def rig(store: Store, upstream: Upstream) -> AsyncIterator[Rig]:
    async with rigged(store, upstream) as rig:
        yield rig


@pytest.fixture
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The wait before another try is a few milliseconds."""
    monkeypatch.setattr(backoff, "FIRST", timedelta(milliseconds=20))
