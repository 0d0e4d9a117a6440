"""Named SQL."""

from __future__ import annotations

from importlib.resources import files

import pytest

from overnight.store.pool import Store
from overnight.store.statements import Statement, load

NOUNS = sorted(f.name.removesuffix(".sql") for f in files("overnight.store").joinpath("sql").iterdir())


def test_parameters_are_numbered_in_the_order_in_which_they_first_appear() -> None:
    statement = Statement("s", "SELECT :b::text, :a, :b WHERE x::int = :a")

    assert statement.sql == "SELECT $1::text, $2, $1 WHERE x::int = $2"
    assert statement.arguments({"a": 1, "b": "two"}) == ["two", 1]


@pytest.mark.parametrize("given", [{}, {"a": 1}, {"a": 1, "b": 2, "c": 3}])
def test_a_missing_or_unknown_parameter_is_an_error(given: dict[str, int]) -> None:
    with pytest.raises(TypeError, match="takes"):
        Statement("s", "SELECT :a, :b").arguments(given)


@pytest.mark.parametrize("noun", NOUNS)
async def test_every_statement_of_every_noun_can_be_prepared_on_the_schema(noun: str, store: Store) -> None:
    async with store.session() as session:
        for statement in load(noun).values():
            prepared = await session.connection.prepare(statement.sql)
            assert len(prepared.get_parameters()) == len(statement.parameters), statement.name
