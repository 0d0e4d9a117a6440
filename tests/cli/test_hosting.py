"""How options become settings."""

from __future__ import annotations

from overnight.cli.hosting import settings


def test_how_many_requests_an_upstream_gets_is_found_unless_a_number_is_given() -> None:
    url = "http://gpu-box:8000/v1"
    assert settings(upstream=[url]).upstreams[0].slots is None
    assert settings(upstream=[url], upstream_slots=7).upstreams[0].slots == 7
