"""Why nothing of a batch can start."""

from __future__ import annotations

from typing import Any

import pytest

from overnight.domain.waiting import SAYS, waiting_for

FREE: dict[str, Any] = {"is_paused": False, "cap": None, "reserve": 0, "is_queued": False, "servers": [None]}


@pytest.mark.parametrize(
    ("differs", "cause"),
    [
        ({}, None),
        ({"servers": ["server_loading", None]}, None),
        ({"cap": 1}, None),
        ({"cap": 0}, "no_capacity"),
        ({"cap": 4, "reserve": 4}, "no_capacity"),
        ({"is_queued": True}, "model_queued"),
        ({"servers": []}, "no_server"),
        ({"servers": ["server_unreachable", "server_loading"]}, "server_loading"),
        ({"servers": ["disk_full"]}, "disk_full"),
        ({"servers": ["of a later version"]}, None),
        ({"is_paused": True, "cap": 0, "is_queued": True, "servers": []}, "paused"),
    ],
)
def test_the_cause_is_the_one_that_has_to_go_first(differs: dict[str, Any], cause: str | None) -> None:
    assert waiting_for(**{**FREE, **differs}) == cause
    assert cause is None or cause in SAYS
