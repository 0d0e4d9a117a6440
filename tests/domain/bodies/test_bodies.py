"""What bodies may hold."""

from __future__ import annotations

import json
from typing import Any

import pytest

from overnight.domain.bodies import BODIES
from overnight.domain.lines import LineError, parse
from overnight.domain.targets import TARGETS
from tests.domain.bodies.examples import BAD, BEYOND_SCHEMAS, CHAT, GOOD, LEAST, USER


def line(url: str, **added: Any) -> bytes:
    return json.dumps({"custom_id": "a", "method": "POST", "url": url, "body": LEAST[url] | added}).encode()


def test_every_target_has_a_table_that_knows_what_it_needs() -> None:
    assert BODIES.keys() == TARGETS.keys()
    for url, body in BODIES.items():
        assert {"model", TARGETS[url].needs} == set(body.schema["required"])


@pytest.mark.parametrize(("url", "added"), [(url, added) for url, bodies in GOOD.items() for added in bodies])
def test_what_the_apis_document_is_accepted(url: str, added: dict[str, Any]) -> None:
    assert parse(line(url, **added))["body"] == LEAST[url] | added


@pytest.mark.parametrize(
    ("url", "added", "where"),
    [(url, added, where) for url, bodies in [*BAD.items(), (CHAT, BEYOND_SCHEMAS)] for added, where in bodies],
)
def test_what_is_not_known_or_not_allowed_is_refused_by_its_name(url: str, added: dict[str, Any], where: str) -> None:
    with pytest.raises(LineError) as caught:
        parse(line(url, **added))

    error = caught.value
    assert (error.code, error.param) == ("invalid_parameter", f"body{where}")
    assert where[1:] in error.message
    assert len(error.message) < 300


def test_the_first_problem_in_the_order_of_the_body_is_told() -> None:
    with pytest.raises(LineError, match="'top_p'"):
        parse(line(CHAT, top_p=5, nonsense=1))
    with pytest.raises(LineError, match="'nonsense'"):
        parse(line(CHAT, nonsense=1, top_p=5))


@pytest.mark.parametrize("deep", [False, True])
def test_a_name_that_a_caller_made_up_is_shown_short_and_can_be_stored(deep: bool) -> None:
    name = "a\0" + "b" * 5_000
    with pytest.raises(LineError) as caught:
        parse(line(CHAT, messages=[USER | {name: 1}]) if deep else line(CHAT, **{name: 1}))

    assert caught.value.param is not None
    assert caught.value.param.endswith(".a\ufffd" + "b" * 78)
    assert len(caught.value.message) < 300
