"""The table of states against the SQL that takes its arrows and the schema that allows its states."""

from __future__ import annotations

import re

from overnight.domain.states import FINAL, FOLLOWS, Status
from overnight.store.pool import Store
from overnight.store.statements import load

_SETS = re.compile(r"UPDATE batch.*?SET status = '(\w+)'", re.DOTALL)
_LEAVES = re.compile(r"WHERE b?\.?no = (?:next\.no|\$\d+).*?status (?:= '(\w+)'|IN \(([^)]*)\))", re.DOTALL)
_QUOTED = re.compile(r"'(\w+)'")


def arrows(sql: str) -> set[tuple[str, str]]:
    """The arrows that a statement takes: its UPDATE names the states it leaves and the one it sets."""
    sets = _SETS.search(sql)
    if sets is None:
        return set()
    guard = _LEAVES.search(sql, sets.end())
    assert guard is not None, f"no guard: {sql}"
    before = [guard[1]] if guard[1] else _QUOTED.findall(guard[2])
    return {(state, sets[1]) for state in before}


def test_the_final_states_are_those_that_nothing_follows() -> None:
    assert {"completed", "expired", "failed", "cancelled"} == FINAL


def test_every_state_can_be_reached_and_every_way_ends() -> None:
    reached: set[Status] = {Status.VALIDATING}
    todo = [Status.VALIDATING]
    while todo:
        for after in FOLLOWS[todo.pop()] - reached:
            reached.add(after)
            todo.append(after)
    assert reached == set(Status) == set(FOLLOWS)
    assert all(FOLLOWS[state] or state in FINAL for state in Status)


def test_the_statements_take_the_arrows_of_the_table_and_no_others() -> None:
    taken: set[tuple[str, str]] = set()
    for statement in load("batch").values():
        taken |= arrows(statement.sql)
    assert taken == {(before, after) for before, follows in FOLLOWS.items() for after in follows}


def test_no_other_file_of_statements_sets_a_state_of_a_batch() -> None:
    for noun in ("account", "answer", "block", "day", "file", "lease", "worker"):
        for statement in load(noun).values():
            assert not _SETS.search(statement.sql), statement.name


async def test_the_schema_allows_the_states_of_the_table_and_no_others(store: Store) -> None:
    async with store.session() as session:
        checks = await session.connection.fetch(
            "SELECT pg_get_constraintdef(oid) AS says FROM pg_constraint"
            " WHERE conrelid = 'batch'::regclass AND contype = 'c'"
        )
    states = [_QUOTED.findall(check["says"]) for check in checks if re.match(r"CHECK \(\(status = ANY", check["says"])]
    assert [set(found) for found in states] == [set(Status)]


async def test_the_index_of_unfinished_batches_holds_all_states_that_are_not_final(store: Store) -> None:
    async with store.session() as session:
        says = await session.connection.fetchval("SELECT pg_get_indexdef('batch_unfinished'::regclass)")
    assert set(_QUOTED.findall(says)) == set(Status) - FINAL
