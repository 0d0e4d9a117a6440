"""Says of an input file what is right and wrong with each of its lines: slow, plain, and independent of the product.

It knows Python's own `json`, the published JSON Schema of lines, and the rules in words; it shares no reader with what
it judges.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

from jsonschema import Draft202012Validator

from overnight.domain.line_schemas import LINE_SCHEMAS

DEEPEST = 128
LONGEST_ID = 512
_SHAPE = Draft202012Validator(LINE_SCHEMAS["batch-input-line.json"])
_NAMES = {"m": "m", "nick": "m", "other": "other"}
"""Names that the tests' worker serves, with the models that they stand for."""


class Wrong(Exception):
    """A text is not strict JSON."""


@dataclass
class Verdict:
    """What is known of a file. Lines are counted from 1, blank ones too."""

    requests: dict[int, bytes] = field(default_factory=dict)
    """Of lines that are not blank, without what ends them."""
    bad: set[int] = field(default_factory=set)
    """Lines that are wrong whatever batch is made of them."""
    codes: dict[int, str] = field(default_factory=dict)
    """Of some of these, the code that tells it."""
    parsed: dict[int, dict[str, Any]] = field(default_factory=dict)
    """The good ones."""

    def bad_in_batch(self, endpoint: str, *, many_models: bool = False) -> set[int]:
        """Lines that a batch for this endpoint is refused for, where each line is right by itself."""
        found = set()
        first = None
        for number, request in self.parsed.items():
            model = _NAMES.get(request["body"]["model"])
            if request["url"] != endpoint or model is None:
                found.add(number)
            elif first is None or many_models:
                first = model
            elif model != first:
                found.add(number)
        return found


def judge(data: bytes, longest: int) -> Verdict:
    """Look at every line of a file."""
    verdict = Verdict()
    seen: set[str] = set()
    for number, line in enumerate(data.split(b"\n"), 1):
        if number == 1:
            line = line.removeprefix(b"\xef\xbb\xbf")
        line = line.removesuffix(b"\r")
        if not line.strip(b" \t\n\r\x0b\x0c"):
            # A line of blanks over the limit is no line of blanks any more.
            if len(line) > longest:
                verdict.requests[number] = line
                _refuse(verdict, number, "line_too_long")
            continue
        verdict.requests[number] = line
        if len(line) > longest:
            _refuse(verdict, number, "line_too_long")
            continue
        try:
            request = read(line)
        except Wrong:
            verdict.bad.add(number)
            continue
        if not is_request(request):
            verdict.bad.add(number)
        elif request["custom_id"] in seen:
            _refuse(verdict, number, "duplicate_custom_id")
        else:
            seen.add(request["custom_id"])
            verdict.parsed[number] = request
    return verdict


def _refuse(verdict: Verdict, number: int, code: str) -> None:
    verdict.bad.add(number)
    verdict.codes[number] = code


def read(text: bytes, deepest: int = DEEPEST) -> Any:
    """Parse strict JSON. Raises Wrong."""
    try:
        value = json.loads(
            text.decode("utf-8"),
            object_pairs_hook=_members,
            parse_constant=_refuse_constant,
            parse_float=_finite,
            parse_int=_whole,
        )
    except (ValueError, RecursionError) as e:
        raise Wrong(str(e)) from None
    if _depth(value) > deepest:
        raise Wrong("too deep")
    return value


def is_request(value: Any) -> bool:
    """Whether a value is a request, by itself."""
    if not isinstance(value, dict) or not _SHAPE.is_valid(value):
        return False
    if not 1 <= len(value["custom_id"]) <= LONGEST_ID:
        return False
    body = value["body"]
    # Rules that are said in words: which names mean no model, and that results are not streamed.
    return (
        body["model"] not in ("", "auto") and not body["model"].startswith("auto-") and body.get("stream") is not True
    )


def _members(pairs: list[tuple[str, Any]]) -> Mapping[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise Wrong("a key twice")
    for name in found:
        _refuse_surrogates(name)
    for value in found.values():
        _refuse_surrogates(value)
    return found


def _refuse_surrogates(value: Any) -> None:
    if isinstance(value, str):
        value.encode()  # raises a ValueError for half of a pair
    elif isinstance(value, list):
        for part in value:
            _refuse_surrogates(part)


def _refuse_constant(name: str) -> Any:
    raise Wrong(name)


def _finite(text: str) -> float:
    value = float(text)
    if not isfinite(value):
        raise Wrong(text)
    return value


def _whole(text: str) -> int | float:
    # Python refuses to read very long integers; their exact value matters to no rule.
    return int(text) if len(text) < 4000 else _finite(text[:1] + "1e300")


def _depth(value: Any) -> int:
    deepest, level = 0, [value]
    while level:
        holders = [part for part in level if isinstance(part, dict | list)]
        deepest += bool(holders)
        level = [part for holder in holders for part in (holder.values() if isinstance(holder, dict) else holder)]
    return deepest
