"""Strict JSON: what every reader of it understands, and all understand alike."""

from __future__ import annotations

import re
from math import isfinite
from typing import Any

import jiter

from overnight.domain.limits import DEEPEST_NESTING

_SHAPES = bytes.maketrans(b"123456789E", b"000000000e")
_MANY_DIGITS = b"0" * 200
"""A number is infinite only with an exponent of two digits or with 200 digits and more; ids look so, too.

Searched for after every digit was made a 0, which takes an eighth of the time of a regular expression.
"""
_REPEATED = re.compile(r'Detected duplicate key "(.*)" at line \d+ column (\d+)', re.DOTALL)


class NotStrict(Exception):
    """A text is refused. `code` is `invalid_utf8` or `invalid_json_line`."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def read(line: bytes) -> Any:
    """Parse a line of JSON as RFC 8259 has it.

    Raises NotStrict unless it is UTF-8 with no key twice in any object, only finite numbers, no half of a
    surrogate pair, and arrays and objects at most 128 deep.
    """
    try:
        value = jiter.from_json(line, catch_duplicate_keys=True, allow_inf_nan=False, cache_mode="keys")
    except ValueError as e:
        raise _not_json(line, e) from None
    shape = line.translate(_SHAPES)
    suspicious = b"0e00" in shape or b"0e+00" in shape or _MANY_DIGITS in shape
    if suspicious or line.count(b"[") + line.count(b"{") > DEEPEST_NESTING:
        _check_values([value], 0)
    return value


def _not_json(line: bytes, error: ValueError) -> NotStrict:
    try:
        line.decode()
    except UnicodeDecodeError as e:
        return NotStrict("invalid_utf8", f"The line is not valid UTF-8: byte {e.start + 1} is wrong.")
    says = str(error)
    repeated = _REPEATED.match(says)
    if repeated:
        key, column = repeated.groups()
        return NotStrict("invalid_json_line", f"The key {key[:80]!r} appears twice in one object (column {column}).")
    if "recursion limit" in says:
        return _too_deep()
    if "number out of range" in says:
        return NotStrict("invalid_json_line", "A number of the line has more digits than can be read (4,300).")
    return NotStrict("invalid_json_line", f"The line is not strict JSON: {says.replace(' at line 1', ' at')}.")


def _too_deep() -> NotStrict:
    return NotStrict("invalid_json_line", f"Arrays and objects are nested more than {DEEPEST_NESTING} deep.")


def _check_values(holder: dict[str, Any] | list[Any], depth: int) -> None:
    """Refuse numbers that are not finite and nesting that is too deep, whatever they were written as."""
    if depth > DEEPEST_NESTING:
        raise _too_deep()
    for value in holder.values() if type(holder) is dict else holder:
        if type(value) is dict or type(value) is list:
            _check_values(value, depth + 1)
        elif type(value) is float and not isfinite(value):
            raise NotStrict("invalid_json_line", "A number of the line is too large to be finite.")
