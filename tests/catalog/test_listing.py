"""What servers answer to the question which models they serve."""

from __future__ import annotations

import json
from typing import Any

import pytest

from overnight.catalog.listing import read_listing


def listing(*entries: Any) -> bytes:
    return json.dumps({"object": "list", "data": entries}).encode()


def test_models_are_listed_by_id() -> None:
    assert [offer.model for offer in read_listing(listing({"id": "b"}, {"id": "a"}))] == ["a", "b"]


@pytest.mark.parametrize(
    ("entry", "length"),
    [
        ({"max_model_len": 4096}, 4096),
        ({"context_length": 8192}, 8192),
        ({"context_window": 131072}, 131072),
        ({"meta": {"n_ctx_train": 2048}}, 2048),
        ({"meta": {"n_ctx_train": 2048, "n_ctx": 512}}, 512),
        ({"max_model_len": 0}, None),
        ({"max_model_len": "4096"}, None),
        ({"max_model_len": True}, None),
        ({"max_model_len": 2**40}, None),
        ({}, None),
    ],
)
def test_context_lengths_are_read_under_the_names_that_servers_use(entry: dict[str, Any], length: int | None) -> None:
    assert read_listing(listing({"id": "m", **entry}))[0].context_length == length


def test_aliases_are_read() -> None:
    assert read_listing(listing({"id": "m", "aliases": ["n", 5, "m", ""]}))[0].aliases == ("n",)


@pytest.mark.parametrize(
    "body",
    [
        b"", b"hello", b"\xff", b"[" * 100_000, b"null", b"5",
        b'{"data":5}', b'{"models":[]}', b'{"data":[]}', b'{"data":[{}]}',
    ],
)  # fmt: skip
def test_whatever_else_is_said_lists_nothing(body: bytes) -> None:
    assert read_listing(body) == ()


def test_odd_entries_are_left_out_and_bare_names_are_taken() -> None:
    body = listing({"id": 5}, {"id": ""}, {"id": "x" * 600}, {"id": "a\nb"}, None, "bare", {"id": "m"}, {"id": "m"})
    assert [offer.model for offer in read_listing(body)] == ["bare", "m"]


def test_a_bare_array_is_a_listing() -> None:
    assert [offer.model for offer in read_listing(b'[{"id":"m"}]')] == ["m"]
