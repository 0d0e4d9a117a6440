"""Who owns what: the accounts."""

from __future__ import annotations

from overnight.store.pool import Session, Store
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


async def is_local(where: Store | Session, account: int) -> bool:
    """Whether an account is the one of local mode, for which the limits of an owner do not hold."""
    row = await where.row(_SQL["is_named"], account=account, name=LOCAL)
    return row is not None and bool(row["yes"])


async def lock(session: Session, account: int) -> None:
    """Let no other transaction count what an account has before this one ends."""
    await session.row(_SQL["lock_account"], account=account)
