"""Values that a JSON Schema of ours admits, made by hypothesis."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

Schema = dict[str, Any]

OWN = st.dictionaries(st.text(max_size=3), st.none() | st.integers() | st.text(max_size=5), max_size=2)


def made_from(schema: Schema) -> st.SearchStrategy[Any]:
    """Values of a schema that uses the words our kinds use."""
    if "const" in schema:
        return st.just(schema["const"])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    for word in ("oneOf", "anyOf"):
        if word in schema and "properties" not in schema:
            return st.one_of([made_from(one) for one in schema[word]])
    type_ = schema.get("type")
    if isinstance(type_, list):
        return st.one_of([made_from(schema | {"type": one}) for one in type_])
    by_type: st.SearchStrategy[Any] = BY_TYPE[type_](schema)
    return by_type


def _string(schema: Schema) -> st.SearchStrategy[str]:
    if "pattern" in schema:
        return st.from_regex(schema["pattern"].replace("$", r"\Z"))
    if "not" in schema:
        return st.text(min_size=1, max_size=9).filter(lambda name: not name.startswith("auto"))
    shortest = schema.get("minLength", 0)
    return st.text(min_size=shortest, max_size=min(shortest + 9, schema.get("maxLength", 99)))


def _number(schema: Schema) -> st.SearchStrategy[float]:
    low, high = schema.get("minimum"), schema.get("maximum")
    return st.floats(low, high, allow_nan=False, allow_infinity=False)


def _array(schema: Schema) -> st.SearchStrategy[list[Any]]:
    fewest = schema.get("minItems", 0)
    of = made_from(schema["items"])
    return st.lists(of, min_size=fewest, max_size=min(fewest + 2, schema.get("maxItems", 99)))


def _object(schema: Schema) -> st.SearchStrategy[dict[str, Any]]:
    members = schema.get("additionalProperties", True)
    if members is True:
        return OWN
    if members is not False:
        return st.dictionaries(st.text(max_size=3), made_from(members), max_size=2)
    fields = {name: made_from(field) for name, field in schema["properties"].items() if field != {"not": {}}}
    needed = {name: fields[name] for name in schema.get("required", ())}
    for one in schema.get("anyOf", ())[:1]:
        needed |= {name: fields[name].filter(lambda value: value is not None) for name in one["required"]}
    if "then" in schema:
        needed["logprobs"] = st.just(True)
    made = _some(needed, {name: field for name, field in fields.items() if name not in needed})
    return _with_choices(made, fields["tools"]) if "tool_choice" in fields else made


@st.composite
def _with_choices(draw: st.DrawFn, bodies: Any, tools: Any) -> dict[str, Any]:
    """Chats that choose among tools that they have."""
    body: dict[str, Any] = draw(bodies)
    chosen = body.get("tool_choice")
    if chosen in (None, "none"):
        return body
    body["tools"] = body.get("tools") or draw(tools)
    if not body["tools"] or not names_a_tool(body):
        body.pop("tool_choice")
    return body


def names_a_tool(body: dict[str, Any]) -> bool:
    """Whether a tool that is chosen by name is there."""
    match body.get("tool_choice"):
        case {"type": ("function" | "custom") as kind}:
            names = [tool[kind]["name"] for tool in body.get("tools") or () if tool["type"] == kind]
            return body["tool_choice"][kind]["name"] in names
    return True


@st.composite
def _some(draw: st.DrawFn, needed: dict[str, Any], others: dict[str, Any]) -> dict[str, Any]:
    """An object with what it needs and a few of its other fields, in any order."""
    names = [*needed]
    if others:
        names += draw(st.lists(st.sampled_from(sorted(others)), unique=True, max_size=4))
    return {name: draw((needed | others)[name]) for name in draw(st.permutations(names))}


BY_TYPE: dict[str | None, Any] = {
    "string": _string,
    "number": _number,
    "integer": lambda schema: st.integers(schema.get("minimum"), schema.get("maximum")),
    "boolean": lambda schema: st.booleans(),
    "null": lambda schema: st.none(),
    "array": _array,
    "object": _object,
    None: lambda schema: st.integers() | st.text(max_size=3),
}
