"""The runtime settings as they are stored: what each means is said by `domain.settings_table`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from overnight.domain.setting import Value
from overnight.store.pool import Store
from overnight.store.statements import load

_SQL = load("setting")


async def read(store: Store) -> dict[str, object]:
    """What was set, by name; None where a setting was set back to its default."""
    return {row["name"]: row["value"] for row in await store.rows(_SQL["list_settings"])}


async def change(store: Store, values: Mapping[str, Value]) -> None:
    """Set some settings, all or none."""
    await store.run(_SQL["change_settings"], names=list(values), values=_as_json(values.values()))


async def reset(store: Store, names: Iterable[str]) -> None:
    """Set some settings back to their defaults, all or none."""
    await change(store, dict.fromkeys(names))


async def set_first(store: Store, values: Mapping[str, Value]) -> None:
    """Set those that nobody has set before."""
    await store.run(_SQL["set_first_values"], names=list(values), values=_as_json(values.values()))


def _as_json(values: Iterable[Value]) -> list[str | None]:
    return [None if value is None else json.dumps(value) for value in values]
