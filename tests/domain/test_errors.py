"""The error tree, its drawing, and the page made from it agree with each other and with what the code says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from overnight.domain import errors
from overnight.domain.codes import ANSWERS, PROBLEMS
from tools import errors_page

SOURCE = Path(errors.__file__).parents[1]


def test_the_page_in_the_docs_is_the_one_made_from_the_tree() -> None:
    assert errors_page.PAGE.read_text("utf-8") == errors_page.page(), "run: python -m tools.errors_page"


@pytest.mark.parametrize("kind", list(dict.fromkeys(errors_page.refusals())))
def test_every_refusal_is_drawn_with_its_code_and_status_and_says_what_to_do(kind: type[errors.Refusal]) -> None:
    drawn = [line for line in (errors.__doc__ or "").splitlines() if re.search(rf"\b{kind.__name__}\b", line)]

    assert len(drawn) == 1
    assert str(kind.status) in drawn[0]
    assert kind.do.endswith(".")
    assert f"| `{kind.code}` | {kind.status} |" in errors_page.page()


def test_every_code_that_the_source_gives_a_line_or_an_answer_is_explained() -> None:
    named = set()
    for path in SOURCE.rglob("*.py"):
        text = path.read_text("utf-8")
        named |= {(path.name, code) for code in re.findall(r'\b(?:LineError|Problem)\(\s*"([a-z_0-9]+)"', text)}
        named |= {(path.name, code) for code in re.findall(r'\bcode="([a-z_0-9]+)"', text)}

    assert len(named) > 10
    assert {(where, code) for where, code in named if code not in PROBLEMS and code not in ANSWERS} == set()
