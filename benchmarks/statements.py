"""Where PostgreSQL's time goes, by its own statistics (`pg_stat_statements`), under the names that we gave."""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib.resources import files

import asyncpg

from overnight.store import statements

LIBRARY = {"shared_preload_libraries": "pg_stat_statements"}
"""The setting that a server needs from its start."""

_VALUES = re.compile(r"'[^']*'")
_WORDS = re.compile(r"(?!(?:true|false|null)\b)\b[a-z_]+")


@dataclass(frozen=True, slots=True)
class Cost:
    """A statement and what all its calls took, in milliseconds of elapsed time (PostgreSQL counts no CPU)."""

    name: str
    calls: int
    milliseconds: float


async def begin(connection: asyncpg.Connection) -> None:
    """Count from now on, on a server that was started with `LIBRARY`."""
    await connection.execute("CREATE EXTENSION IF NOT EXISTS pg_stat_statements")
    await connection.execute("SELECT pg_stat_statements_reset()")


async def most_costly(connection: asyncpg.Connection, database: str, most: int = 8) -> list[Cost]:
    """What took longest in a database since `begin`, planning included where it is counted."""
    rows = await connection.fetch(
        "SELECT query, sum(calls)::bigint AS calls, sum(total_exec_time + total_plan_time) AS took"
        " FROM pg_stat_statements JOIN pg_database ON pg_database.oid = dbid WHERE datname = $1"
        " GROUP BY query ORDER BY took DESC LIMIT $2",
        database, most,
    )  # fmt: skip
    names = _names()
    return [
        Cost(names.get(_shape(row["query"]), " ".join(row["query"].split())[:40]), row["calls"], row["took"])
        for row in rows
    ]


def _names() -> dict[str, str]:
    sql = files("overnight.store").joinpath("sql")
    nouns = [entry.name.removesuffix(".sql") for entry in sql.iterdir() if entry.name.endswith(".sql")]
    return {_shape(one.sql): f"{noun}.{one.name}" for noun in nouns for one in statements.load(noun).values()}


def _shape(sql: str) -> str:
    """Its words alone: PostgreSQL puts numbers of parameters in the place of values, and shortens lists of them."""
    return " ".join(_WORDS.findall(_VALUES.sub("", sql).lower()))
