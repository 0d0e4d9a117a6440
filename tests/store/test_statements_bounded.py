"""Every statement has a bound: a LIMIT, or keys that its caller names. Those that cannot say why."""

from __future__ import annotations

import re

from overnight.store.statements import load
from tests.store.test_statements_used import NOUNS

_KEY = re.compile(
    r"\b(?:\w+\.)?(?:no|id|batch|file|upload|worker|owner|name|relname) = (?:ANY \()?(?:ARRAY \(|\$\d+|\(\s*SELECT)"
)
_OPTIONAL = re.compile(r"\(\$\d+::bigint\[\] IS NULL OR (?:\w+\.)?no = ANY \(\$\d+\)\)")
"""A filter that lets all through where it is not given: no bound."""
_VALUES = re.compile(r"^INSERT INTO [^;]*\bVALUES \(", re.DOTALL)

UNBOUNDED = {
    "measure_work": "sums up the unfinished batches, whose number intake and limits bound",
    "serialise_creates": "a lock",
    "read_clock": "no table",
    "open_day_ahead": "the tables of one day",
    "drop_partition": "one table",
    "create_batch": "one row",
    "register_worker": "one row",
    "change_settings": "the settings that its caller names",
    "set_first_values": "the settings that its caller names",
    "release_ended": "a row for each capped model of workers that froze lately",
    "list_held_models": "the models that its caller names",
    "tell_of_served": "no table",
}


def test_every_statement_has_a_limit_or_a_key_or_says_why_not() -> None:
    without = {
        statement.name
        for noun in NOUNS
        for statement in load(noun).values()
        if not (
            "LIMIT " in statement.sql or _KEY.search(_OPTIONAL.sub("", statement.sql)) or _VALUES.search(statement.sql)
        )
    }
    assert without == UNBOUNDED.keys()
