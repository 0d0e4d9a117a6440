"""A deployment to make batches in."""

from __future__ import annotations

import pytest_asyncio

from overnight.store.pool import Store
from tests.batches.factory import Factory, make_factory


@pytest_asyncio.fixture
async def make(store: Store) -> Factory:
    return await make_factory(store)
