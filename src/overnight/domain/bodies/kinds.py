"""The kinds of values that fields take: each checks a value and says the same as a JSON Schema."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf
from typing import Any, NamedTuple

Schema = dict[str, Any]

LONGEST_NAME_SHOWN = 80


class Wrong(NamedTuple):
    """What is wrong with a value: where below it (`.url`, `[2].role`; empty: itself), and a sentence's end."""

    where: str
    says: str


Check = Callable[[Any], Wrong | None]


@dataclass(frozen=True, slots=True)
class Kind:
    """What a field may hold."""

    check: Check
    """Returns what is wrong with a parsed value, None where it is right."""
    schema: Schema
    is_called: str
    """As in "must be …"."""
    takes: tuple[type, ...]
    """The Python types of its values, as the parser makes them; only such values are checked any further."""

    @property
    def wrong(self) -> Wrong:
        """The refusal of a value that is not of this kind at all."""
        return Wrong("", f"must be {self.is_called}")


def is_wrong(is_called: str) -> Wrong:
    """A refusal of the value itself."""
    return Wrong("", f"must be {is_called}")


def below(name: str | int, wrong: Wrong) -> Wrong:
    """The same refusal, seen from the object or array that holds the value."""
    step = f"[{name}]" if isinstance(name, int) else f".{name[:LONGEST_NAME_SHOWN]}"
    return Wrong(step + wrong.where, wrong.says)


def boolean() -> Kind:
    """`true` or `false`."""
    wrong = is_wrong("true or false")

    def check(value: Any) -> Wrong | None:
        return None if value is True or value is False else wrong

    return Kind(check, {"type": "boolean"}, "true or false", (bool,))


def null() -> Kind:
    """Only null; a field that may be there without a value."""
    wrong = is_wrong("null")
    return Kind(lambda value: None if value is None else wrong, {"type": "null"}, "null", (type(None),))


def nothing(why: str) -> Kind:
    """No value at all: the field is known and cannot be used, and this says why."""
    wrong = Wrong("", why)
    return Kind(lambda value: wrong, {"not": {}}, "left out", ())


def number(low: float | None = None, high: float | None = None) -> Kind:
    """A number between bounds that belong to it."""
    is_called = f"a number{_bounds(low, high)}"
    wrong = is_wrong(is_called)
    least, most = -inf if low is None else low, inf if high is None else high

    def check(value: Any) -> Wrong | None:
        kind = type(value)
        return None if (kind is float or kind is int) and least <= value <= most else wrong

    return Kind(check, {"type": "number"} | _range(low, high), is_called, (int, float))


def integer(low: int | None = None, high: int | None = None) -> Kind:
    """A whole number between bounds that belong to it, of any size; `5.0` is one, as JSON Schema has it."""
    is_called = f"an integer{_bounds(low, high)}"
    wrong = is_wrong(is_called)
    least, most = -inf if low is None else low, inf if high is None else high

    def check(value: Any) -> Wrong | None:
        kind = type(value)
        is_whole = kind is int or (kind is float and value.is_integer())
        return None if is_whole and least <= value <= most else wrong

    return Kind(check, {"type": "integer"} | _range(low, high), is_called, (int, float))


def text(shortest: int = 0, longest: int | None = None) -> Kind:
    """A string; its length counts code points."""
    is_called = _named_length("a string", "characters", shortest, longest)
    wrong = is_wrong(is_called)
    most = inf if longest is None else longest

    def check(value: Any) -> Wrong | None:
        return None if type(value) is str and shortest <= len(value) <= most else wrong

    def check_type(value: Any) -> Wrong | None:
        return None if type(value) is str else wrong

    schema: Schema = {"type": "string"}
    if shortest:
        schema["minLength"] = shortest
    if longest is not None:
        schema["maxLength"] = longest
    is_any = not shortest and longest is None
    return Kind(check_type if is_any else check, schema, is_called, (str,))


def pattern(regex: str, is_called: str) -> Kind:
    """A string that matches as a whole. The expression means the same in Python and in JavaScript."""
    wrong = is_wrong(is_called)
    matches = re.compile(regex).fullmatch

    def check(value: Any) -> Wrong | None:
        return None if type(value) is str and matches(value) else wrong

    return Kind(check, {"type": "string", "pattern": f"^{regex}$"}, is_called, (str,))


def choice(*values: str) -> Kind:
    """One of some strings."""
    is_called = " or ".join(map(repr, values)) if len(values) <= 2 else f"one of {', '.join(map(repr, values))}"
    wrong = is_wrong(is_called)
    known = frozenset(values)

    def check(value: Any) -> Wrong | None:
        return None if type(value) is str and value in known else wrong

    schema = {"const": values[0]} if len(values) == 1 else {"enum": list(values)}
    return Kind(check, schema, is_called, (str,))


def own_object() -> Kind:
    """An object whose members are the caller's own: a schema, arguments of a template."""
    wrong = is_wrong("an object")
    return Kind(lambda value: None if type(value) is dict else wrong, {"type": "object"}, "an object", (dict,))


def anything() -> Kind:
    """Any value but null."""
    types = (bool, int, float, str, list, dict)
    return Kind(lambda value: None, {}, "any value", types)


def array(of: Kind, fewest: int = 0, most: int | None = None) -> Kind:
    """An array with so many elements of one kind."""
    is_called = _named_length("an array", "elements", fewest, most)
    wrong = is_wrong(is_called)
    check_one, highest = of.check, inf if most is None else most

    def check(value: Any) -> Wrong | None:
        if type(value) is not list or not fewest <= len(value) <= highest:
            return wrong
        for number, element in enumerate(value):
            found = check_one(element)
            if found is not None:
                return below(number, found)
        return None

    schema: Schema = {"type": "array", "items": of.schema}
    if fewest:
        schema["minItems"] = fewest
    if most is not None:
        schema["maxItems"] = most
    return Kind(check, schema, is_called, (list,))


def mapping(of: Kind, most: int | None = None, longest_name: int | None = None) -> Kind:
    """An object with names of the caller's own and values of one kind."""
    is_called = "an object" if most is None else f"an object of at most {most} members"
    wrong = is_wrong(is_called)
    highest, longest = inf if most is None else most, inf if longest_name is None else longest_name

    def check(value: Any) -> Wrong | None:
        if type(value) is not dict or len(value) > highest:
            return wrong
        for name, member in value.items():
            if len(name) > longest:
                return below(name, Wrong("", f"must have a name of at most {longest_name} characters"))
            found = of.check(member)
            if found is not None:
                return below(name, found)
        return None

    schema: Schema = {"type": "object", "additionalProperties": of.schema}
    if most is not None:
        schema["maxProperties"] = most
    if longest_name is not None:
        schema["propertyNames"] = {"maxLength": longest_name}
    return Kind(check, schema, is_called, (dict,))


def either(*kinds: Kind) -> Kind:
    """A value of one of some kinds; its type says which, so each type belongs to one kind."""
    is_called = " or ".join(kind.is_called for kind in kinds)
    wrong = is_wrong(is_called)
    checks = {type_: kind.check for kind in kinds for type_ in kind.takes}
    takes = tuple(type_ for kind in kinds for type_ in kind.takes)
    assert len(checks) == len(takes), f"two kinds take the same type: {is_called}"
    find = checks.get

    def check(value: Any) -> Wrong | None:
        look = find(type(value))
        return wrong if look is None else look(value)

    return Kind(check, _either_schema([kind.schema for kind in kinds]), is_called, takes)


def nullable(kind: Kind) -> Kind:
    """A value of a kind, or null."""
    return either(kind, null())


def _either_schema(schemas: list[Schema]) -> Schema:
    types = [schema.get("type") for schema in schemas]
    if types[1:] == ["null"] and isinstance(types[0], str):
        return schemas[0] | {"type": [types[0], "null"]}
    return {"anyOf": schemas}


def _bounds(low: float | None, high: float | None) -> str:
    if low is None:
        return "" if high is None else f" of at most {high}"
    return f" of at least {low}" if high is None else f" from {low} to {high}"


def _range(low: float | None, high: float | None) -> Schema:
    return {name: bound for name, bound in (("minimum", low), ("maximum", high)) if bound is not None}


def _named_length(noun: str, units: str, fewest: int, most: int | None) -> str:
    if most is not None:
        return f"{noun} of {fewest} to {most:,} {units}" if fewest else f"{noun} of at most {most:,} {units}"
    return f"{noun} that is not empty" if fewest == 1 else noun


def only_names(fields: Mapping[str, Kind]) -> Schema:
    """The part of a schema that names fields and admits no others."""
    return {"properties": {name: kind.schema for name, kind in fields.items()}, "additionalProperties": False}
