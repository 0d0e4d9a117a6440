"""How options become settings."""

from __future__ import annotations

import pytest
import typer

from overnight.cli.hosting import settings


def test_how_many_requests_an_upstream_gets_is_found_unless_a_number_is_given() -> None:
    url = "http://gpu-box:8000/v1"
    assert settings(upstream=[url]).upstreams[0].slots is None
    assert settings(upstream=[url], upstream_slots=7).upstreams[0].slots == 7


def test_what_upstreams_lack_must_be_a_field_of_some_body() -> None:
    url = "http://gpu-box:8000/v1"
    (upstream,) = settings(upstream=[url], upstream_lacks=["logprobs", "messages.image_url"]).upstreams
    assert upstream.lacks == {"logprobs", "messages.image_url"}
    with pytest.raises(typer.BadParameter, match="colour"):
        settings(upstream=[url], upstream_lacks=["colour"])
