"""The create call is read strictly, and every refusal names the field."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from overnight.batches.request import read_create
from overnight.domain.errors import BadRequest, InvalidJSON, InvalidParameter, MissingParameter, UnknownParameter

GOOD = {"input_file_id": "file-1", "endpoint": "/v1/chat/completions"}


def read(**given: Any) -> Any:
    return read_create(json.dumps({**GOOD, **given}).encode())


def test_all_that_openai_sends_is_read() -> None:
    new = read(
        completion_window="24h",
        metadata={"project": "eval"},
        output_expires_after={"anchor": "created_at", "seconds": 3600},
    )
    assert (new.input_file_id, new.endpoint) == ("file-1", "/v1/chat/completions")
    assert new.completion_window == "24h"
    assert new.metadata == {"project": "eval"}
    assert new.output_expires_after == 3600
    assert new.kept_for == timedelta(hours=1)


def test_the_five_defaults_are_kept_as_given() -> None:
    given = {"max_decoding_length": 1, "max_context_length": 4096, "temperature": 0.7, "top_p": 1, "top_k": 0}
    assert read(**given).defaults == given


def test_what_is_left_out_or_null_is_absent() -> None:
    names = ("completion_window", "metadata", "output_expires_after", "temperature", "top_k", "requests")
    new = read(**dict.fromkeys(names))
    assert new == read()
    assert (new.completion_window, new.metadata, new.defaults) == (None, {}, {})


@pytest.mark.parametrize("window", ["1h", "24h", "168h", "none"])
def test_a_window_is_a_number_of_hours_or_none(window: str) -> None:
    assert read(completion_window=window).completion_window == window


VALUES: dict[str, tuple[Any, ...]] = {
    "completion_window": (
        *("0h", "169h", "1000h", "024h", "24", "h", "24H", "24h ", "-1h", "1.5h", "None", "", 24, "२४h"),
    ),
    "endpoint": ("", "/v1/chat/completions/", "/v1/responses", "chat", 5, ["/v1/embeddings"]),
    "input_file_id": (5, ["file-1"], {}, True),
    "metadata": (
        *([], "x", {"a": 1}, {"a": None}, {"a": {"b": "c"}}, {"k" * 65: "v"}, {"k": "v" * 513}),
        *({str(i): "v" for i in range(17)}, {"a\0": "b"}, {"a": "b\0"}),
    ),
    "max_decoding_length": (0, -1, 1.5, "1", True, 2**31),
    "max_context_length": (0, 2**31, [1]),
    "temperature": (-0.1, 2.1, "1", True, []),
    "top_p": (-1, 1.1, False),
    "top_k": (-1, 0.5, 2**31, "5"),
    "requests": ([], [{"custom_id": "a"}], 5),
    "output_expires_after": (3_600, "x", []),
}
SECONDS: tuple[Any, ...] = (3_599, 2_592_001, 3600.0, "3600", True, None)
WRONG: list[tuple[dict[str, Any], str]] = [
    *(({name: value}, name) for name, values in VALUES.items() for value in values),
    ({"output_expires_after": {"anchor": "now", "seconds": 3_600}}, "output_expires_after.anchor"),
    *(
        ({"output_expires_after": {"anchor": "created_at", "seconds": value}}, "output_expires_after.seconds")
        for value in SECONDS
    ),
]


@pytest.mark.parametrize(("given", "param"), WRONG)
def test_a_wrong_value_is_refused_by_its_name(given: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidParameter) as refused:
        read(**given)
    assert refused.value.param == param


def test_the_largest_values_are_accepted() -> None:
    new = read(
        metadata={str(i): "v" * 512 for i in range(15)} | {"k" * 64: ""},
        output_expires_after={"anchor": "created_at", "seconds": 2_592_000},
        temperature=2,
        top_p=1.0,
        top_k=2**31 - 1,
        max_decoding_length=2**31 - 1,
    )
    assert len(new.metadata) == 16
    assert new.defaults["temperature"] == 2


def test_metadata_is_measured_in_characters() -> None:
    assert read(metadata={"é" * 64: "語" * 512}).metadata == {"é" * 64: "語" * 512}


@pytest.mark.parametrize("missing", ["input_file_id", "endpoint"])
def test_a_missing_field_is_named(missing: str) -> None:
    given = {name: value for name, value in GOOD.items() if name != missing}
    with pytest.raises(MissingParameter) as refused:
        read_create(json.dumps(given).encode())
    assert refused.value.param == missing


@pytest.mark.parametrize("missing", ["anchor", "seconds"])
def test_a_missing_part_of_the_expiry_is_named(missing: str) -> None:
    given: dict[str, Any] = {"anchor": "created_at", "seconds": 3600}
    del given[missing]
    with pytest.raises(MissingParameter) as refused:
        read(output_expires_after=given)
    assert refused.value.param == f"output_expires_after.{missing}"


@pytest.mark.parametrize("name", ["model", "Endpoint", "input_file_ids", "x" * 200, "n\0ul", ""])
def test_an_unknown_field_is_refused_by_its_name(name: str) -> None:
    with pytest.raises(UnknownParameter) as refused:
        read(**{name: "x"})
    assert refused.value.param == name[:80].replace("\0", "\\0")


def test_an_unknown_field_is_refused_even_where_it_holds_nothing() -> None:
    with pytest.raises(UnknownParameter):
        read(endpoints=None)


def test_an_unknown_part_of_the_expiry_is_refused() -> None:
    with pytest.raises(UnknownParameter):
        read(output_expires_after={"anchor": "created_at", "seconds": 3600, "minutes": 1})


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'"text"',
        b'{"endpoint":"a","endpoint":"b"}',
        b'{"metadata":{"a":"1","a":"2"}}',
        b'{"temperature":NaN}',
        b'{"temperature":Infinity}',
        b'{"metadata":"\xff"}',
        b'{"endpoint":"\\ud800"}',
        b"{} {}",
        b'{"metadata":' + b"[" * 5_000,
    ],
)
def test_a_body_that_is_not_strict_json_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidJSON):
        read_create(body)


@pytest.mark.parametrize("number", ["1e999", "-1e999", "9" * 400])
def test_a_number_that_is_not_finite_is_refused(number: str) -> None:
    body = json.dumps({**GOOD, "temperature": 0.5}).replace("0.5", number).encode()
    with pytest.raises(BadRequest):
        read_create(body)
