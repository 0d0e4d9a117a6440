"""The table of states against the SQL that takes its arrows and the schema that allows its states."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

from overnight.domain.states import FINAL, FOLLOWS, Status
from overnight.store.pool import Store
from overnight.store.statements import load
from tests.store.test_statements_used import NOUNS

DOCS = Path(__file__).parents[2] / "docs" / "architecture.md"
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


def test_the_chart_in_the_docs_shows_the_arrows_of_the_table_and_no_others() -> None:
    chart = re.search(r"^## 6\. States\n+```\n(.*?)```", DOCS.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    assert chart is not None
    assert drawn(chart[1]) == {(before, after) for before, follows in FOLLOWS.items() for after in follows}


def drawn(chart: str) -> set[tuple[str, str]]:
    """The arrows of a chart: along a line, from the state above a corner, and those that words add."""
    found: set[tuple[str, str]] = set()
    first, *others = chart.splitlines()
    above = [(match.start(), match.end(), match[0]) for match in re.finditer(r"\w+", first)]
    found |= set(pairwise(name for _, _, name in above))
    for line in others:
        drawing, _, words = line.partition("   also from ")
        names = re.findall(rf"(?<=→ )(?:{'|'.join(Status)})\b", drawing)
        corner = max(drawing.find("├"), drawing.find("└"))
        sources = [name for start, stop, name in above if start <= corner < stop] + words.split()
        found |= {(source, names[0]) for source in sources} | set(pairwise(names))
    return found


def test_no_other_file_of_statements_sets_a_state_of_a_batch() -> None:
    for noun in sorted(set(NOUNS) - {"batch"}):
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
