"""The JSON Schemas of lines say the same as the checks."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from overnight.domain.bodies import BODIES
from overnight.domain.body import prepare, read_request
from overnight.domain.lines import LineError, Splitter, parse
from tests.domain.bodies.examples import BAD, GOOD, LEAST
from tests.domain.bodies.made import made_from, names_a_tool

VALIDATORS = {url: Draft202012Validator(body.schema) for url, body in BODIES.items()}
URLS = st.sampled_from(sorted(BODIES))
BODIES_MADE = {url: made_from(body.schema) for url, body in BODIES.items()}
JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(-3, 3) | st.sampled_from(["", "auto", "user", "x" * 70]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["type", "name", "x"]), inner),
    max_leaves=5,
)


@pytest.mark.parametrize("url", BODIES)
def test_the_schemas_are_schemas(url: str) -> None:
    Draft202012Validator.check_schema(BODIES[url].schema)


@pytest.mark.parametrize("url", BODIES)
def test_schema_and_check_agree_on_every_example(url: str) -> None:
    for added in GOOD[url]:
        assert VALIDATORS[url].is_valid(LEAST[url] | added), added
    for added, _ in BAD[url]:
        assert not VALIDATORS[url].is_valid(LEAST[url] | added), added


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of everything inside a value."""
    found = []
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            found += [(*path, key), *places(inner, (*path, key))]
    return found


def changed(body: dict[str, Any], path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    other = copy.deepcopy(body)
    holder: Any = other
    for step in path[:-1]:
        holder = holder[step]
    holder[path[-1]] = value
    return other


@given(URLS, st.data())
@settings(max_examples=300, deadline=None)
def test_schema_and_check_agree_on_bodies_of_which_one_place_was_changed(url: str, data: st.DataObject) -> None:
    body = data.draw(BODIES_MADE[url])
    path = data.draw(st.sampled_from(places(body)))
    body = changed(body, path, data.draw(JSON))
    try:
        parse(json.dumps({"custom_id": "a", "method": "POST", "url": url, "body": body}).encode())
        is_accepted = True
    except LineError:
        is_accepted = False

    is_right = VALIDATORS[url].is_valid(body) and names_a_tool(body)
    assert is_accepted == is_right


@given(URLS, st.data())
@settings(max_examples=300, deadline=None)
def test_a_body_made_from_the_tables_is_accepted_and_sent_byte_for_byte(url: str, data: st.DataObject) -> None:
    body = data.draw(BODIES_MADE[url])
    ascii_only, gap = data.draw(st.booleans()), data.draw(st.sampled_from(["", " ", " \t"]))
    written = json.dumps(body, ensure_ascii=ascii_only, separators=(gap + ",", ":" + gap)).encode()
    text = b'{"custom_id":"a","method":"POST","url":"%b","body":%b}' % (url.encode(), written)

    parse(text)
    ((_, stored),) = Splitter(2**20).feed(text + b"\n")

    assert stored == text
    sent = prepare(bytes(read_request(stored).body), url, {}, None)
    assert sent == written


@given(URLS, st.data())
@settings(max_examples=100, deadline=None)
def test_what_the_model_is_called_by_its_server_changes_nothing_else(url: str, data: st.DataObject) -> None:
    body = data.draw(BODIES_MADE[url])

    sent = json.loads(prepare(json.dumps(body).encode(), url, {}, "other"))

    assert sent == body | {"model": "other"}
    assert list(sent) == list(body)
