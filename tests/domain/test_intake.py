"""The queue takes all of a batch or nothing, and keeps room for small ones."""

from __future__ import annotations

import pytest

from overnight.domain.intake import has_room, waiting


@pytest.mark.parametrize(
    ("queued", "more", "fits"),
    [
        (0, 1_000, True),
        (0, 1_001, False),
        (900, 100, True),
        (900, 101, False),
        (901, 10, True),
        (901, 11, False),
        (990, 10, True),
        (991, 10, False),
        (1_000, 1, False),
        (1_000, 0, True),
    ],
)
def test_above_nine_tenths_only_a_hundredth_gets_in(queued: int, more: int, fits: bool) -> None:
    assert has_room(queued, more, 1_000) is fits


@pytest.mark.parametrize(
    ("unanswered", "running", "ending", "expected"), [(9, 0, 0, 9), (9, 4, 0, 5), (9, 4, 3, 8), (3, 4, 0, 0)]
)
def test_what_runs_does_not_wait(unanswered: int, running: int, ending: int, expected: int) -> None:
    assert waiting(unanswered, running, ending) == expected
