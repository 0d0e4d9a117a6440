"""Every named statement is used somewhere, and every name that is used exists."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest

from overnight.store.statements import load

NOUNS = sorted(
    entry.name.removesuffix(".sql")
    for entry in files("overnight.store").joinpath("sql").iterdir()
    if ".sql" in entry.name
)
_LOADED = re.compile(r'(\w+) = load\("(\w+)"\)')


def used(noun: str) -> set[str]:
    """The names by which the modules of the store take statements of one noun."""
    names: set[str] = set()
    for entry in files("overnight.store").iterdir():
        if not entry.name.endswith(".py"):
            continue
        text = entry.read_text("utf-8")
        for variable, loaded in _LOADED.findall(text):
            if loaded == noun:
                for taken in re.findall(rf"{variable}\[([^\]]*)\]", text):
                    names.update(re.findall(r'"(\w+)"', taken))
    return names


@pytest.mark.parametrize("noun", NOUNS)
def test_every_statement_is_used_and_every_use_has_its_statement(noun: str) -> None:
    assert used(noun) == set(load(noun))
