"""Brings a database to this version's schema: forward only, each file once, one process at a time."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from importlib.resources import files

import asyncpg

from overnight.domain.errors import Unusable

_FILE = re.compile(r"(\d{4})_(pre|post)_\w+\.sql")
_LOCK = 0x6F76_6E69  # any number, the same in every version
LOCK_TIMEOUT = "5s"
"""A migration that can't have its table at once gives way, so that running processes are not held up behind it."""

AS_GOOD = frozenset({"55fb494c2d672c9528115a242cebe85cda90bbd3df4bbdb57d6506bd3b8263b1"})
"""Digests of other texts that databases were made with: 0001 with the column that 0008 adds elsewhere."""


@dataclass(frozen=True, slots=True)
class Migration:
    number: int
    name: str
    sql: str

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.sql.encode()).hexdigest()


def known() -> list[Migration]:
    """The migrations of this version, in order."""
    found = []
    for entry in files("overnight.store").joinpath("migrations").iterdir():
        match = _FILE.fullmatch(entry.name)
        if match:
            found.append(Migration(int(match[1]), entry.name, entry.read_text("utf-8")))
    return sorted(found, key=lambda m: m.number)


async def migrate(connection: asyncpg.Connection) -> list[str]:
    """Apply what the database lacks and return its names. Waits while another process does the same.

    Raises Unusable where the database is newer than this version, too old a PostgreSQL, or was migrated by
    files that differ from these.
    """
    if connection.get_server_version().major < 15:
        raise Unusable("Overnight needs PostgreSQL 15 or newer; name another server with --database-url.")
    await connection.execute("SELECT pg_advisory_lock($1)", _LOCK)
    try:
        return await _migrate(connection)
    finally:
        await connection.execute("SELECT pg_advisory_unlock($1)", _LOCK)


async def newest_applied(connection: asyncpg.Connection) -> str:
    """The name of the last migration of a database that has been migrated."""
    name: str = await connection.fetchval("SELECT name FROM migration ORDER BY number DESC LIMIT 1")
    return name


async def _migrate(connection: asyncpg.Connection) -> list[str]:
    await connection.execute(
        "CREATE TABLE IF NOT EXISTS migration ("
        " number integer PRIMARY KEY, name text NOT NULL, digest text NOT NULL,"
        " applied_at timestamptz NOT NULL DEFAULT now())"
    )
    applied = {r["number"]: r for r in await connection.fetch("SELECT number, name, digest FROM migration LIMIT 10000")}
    mine = known()
    newest = mine[-1].number
    if applied and max(applied) > newest:
        raise Unusable(
            f"The database is at migration {max(applied)}, this version knows {newest}: "
            "it was used by a newer Overnight. Install that version."
        )
    done = []
    for migration in mine:
        before = applied.get(migration.number)
        if before is None:
            await _apply(connection, migration)
            done.append(migration.name)
        elif before["digest"] not in AS_GOOD | {migration.digest}:
            raise Unusable(f"Migration {before['name']} differs from the one this database was made with.")
    return done


async def _apply(connection: asyncpg.Connection, migration: Migration) -> None:
    async with connection.transaction():
        await connection.execute(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT}'")
        await connection.execute(migration.sql)
        await connection.execute(
            "INSERT INTO migration (number, name, digest) VALUES ($1, $2, $3)",
            migration.number,
            migration.name,
            migration.digest,
        )
