"""Who owns what: the accounts."""

from __future__ import annotations

from overnight.store.pool import Store
from overnight.store.statements import load

_SQL = load("account")

LOCAL = "local"
"""The one owner while no keys are asked for."""


async def local_owner(store: Store) -> int:
    """Return the number of the account that owns everything in local mode. The schema holds it from the start."""
    row = await store.row(_SQL["find_account_named"], name=LOCAL)
    if row is None:
        raise LookupError(f"the account {LOCAL!r} is missing from the database")
    no: int = row["no"]
    return no
