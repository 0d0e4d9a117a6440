"""Settings are stored all or none, and the environment gives the first value only."""

from __future__ import annotations

import asyncpg
import pytest

from overnight.store import settings
from overnight.store.pool import Store


async def test_what_was_set_is_read_with_its_type(store: Store) -> None:
    await settings.change(store, {"A": 5, "B": False})
    await settings.change(store, {"B": True, "C": 0})
    assert await settings.read(store) == {"A": 5, "B": True, "C": 0}


async def test_a_setting_that_was_set_back_is_known_to_have_been(store: Store) -> None:
    await settings.change(store, {"A": 5, "B": 6})
    await settings.reset(store, ["A"])
    assert await settings.read(store) == {"A": None, "B": 6}


async def test_a_first_value_changes_nothing_that_was_set_or_set_back(store: Store) -> None:
    await settings.change(store, {"A": 5})
    await settings.reset(store, ["B"])
    await settings.set_first(store, {"A": 1, "B": 2, "C": 3})
    assert await settings.read(store) == {"A": 5, "B": None, "C": 3}


async def test_one_value_that_cannot_be_stored_leaves_all_as_they_were(store: Store) -> None:
    await settings.change(store, {"A": 1})
    with pytest.raises(asyncpg.PostgresError):
        await settings.change(store, {"A": 2, "B": float("nan")})  # type: ignore[dict-item]
    assert await settings.read(store) == {"A": 1}
