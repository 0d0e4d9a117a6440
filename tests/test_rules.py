"""The rules that always hold, in docs/architecture.md, and the tests that would notice."""

from __future__ import annotations

import re
from pathlib import Path

_TESTS = Path(__file__).parent
_DESIGN = _TESTS.parent / "docs" / "architecture.md"
_ROW = re.compile(r"^\| (\d+) \| .* \| (`.*`) \|$", re.MULTILINE)
_RULE = re.compile(r"^(\d+)\. \*\*", re.MULTILINE)


def test_every_rule_names_tests_that_there_are() -> None:
    text = _DESIGN.read_text()
    section = text[text.index("## 5. ") : text.index("## 6. ")]
    rows = _ROW.findall(section)
    named = {name for _, names in rows for name in re.findall(r"`([^`]+)`", names)}
    missing = set()
    for name in named:
        file, test = name.split("::")
        if f"def {test}(" not in (_TESTS / file).read_text():
            missing.add(name)
    assert missing == set()
    assert {rule for rule, _ in rows} == set(_RULE.findall(section))
