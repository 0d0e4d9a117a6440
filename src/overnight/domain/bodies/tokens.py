"""Prompts and inputs: a text, several, or the numbers of their tokens."""

from __future__ import annotations

from typing import Any

from overnight.domain.bodies.kinds import Kind, Schema, Wrong, below, is_wrong

MOST_PROMPTS = 2_048
"""Texts or arrays of tokens in one request."""

_MANY = f"an array of 1 to {MOST_PROMPTS:,} strings, of token numbers, or of arrays of token numbers"
_TOKENS = is_wrong("an array of token numbers that is not empty")


def tokens(fewest: int = 0) -> Kind:
    """An array of token numbers."""
    wrong = _TOKENS if fewest else is_wrong("an array of token numbers")

    def check(value: Any) -> Wrong | None:
        return None if type(value) is list and len(value) >= fewest and _are_tokens(value) else wrong

    schema: Schema = {"type": "array", "items": {"type": "integer", "minimum": 0}}
    if fewest:
        schema["minItems"] = fewest
    return Kind(check, schema, "an array of token numbers", (list,))


def prompts(shortest: int) -> Kind:
    """One text, or several, or one as token numbers, or several as such; a text has at least `shortest` characters."""
    an_element = "a string that is not empty" if shortest else "a string"
    is_called = f"{an_element} or {_MANY}"
    wrong = is_wrong(is_called)
    no_text = is_wrong(an_element)

    def check_texts(value: list[Any]) -> Wrong | None:
        for number, element in enumerate(value):
            if type(element) is not str or len(element) < shortest:
                return below(number, no_text)
        return None if len(value) <= MOST_PROMPTS else wrong

    def check(value: Any) -> Wrong | None:
        if type(value) is str:
            return None if len(value) >= shortest else wrong
        if type(value) is not list or not value:
            return wrong
        first = type(value[0])
        if first is str:
            return check_texts(value)
        if first is list:
            return _check_arrays(value, wrong)
        return None if _are_tokens(value) else wrong

    one: Schema = {"type": "string", "minLength": shortest} if shortest else {"type": "string"}
    some: Schema = {"type": "array", "items": one, "minItems": 1, "maxItems": MOST_PROMPTS}
    as_tokens = tokens(fewest=1).schema
    arrays: Schema = {"type": "array", "items": as_tokens, "minItems": 1, "maxItems": MOST_PROMPTS}
    return Kind(check, {"anyOf": [one, some, as_tokens, arrays]}, is_called, (str, list))


def _check_arrays(value: list[Any], wrong: Wrong) -> Wrong | None:
    for number, element in enumerate(value):
        if type(element) is not list or not element or not _are_tokens(element):
            return below(number, _TOKENS)
    return None if len(value) <= MOST_PROMPTS else wrong


def _are_tokens(value: list[Any]) -> bool:
    return all((type(n) is int or (type(n) is float and n.is_integer())) and n >= 0 for n in value)
