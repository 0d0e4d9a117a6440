"""Which window a batch gets, by what it asks for and what the operator has set."""

from __future__ import annotations

from datetime import timedelta

import pytest

from overnight.domain.errors import InvalidParameter
from overnight.domain.window import is_allowed, window_of


def hours(count: int) -> timedelta:
    return timedelta(hours=count)


@pytest.mark.parametrize(
    ("asked", "usual", "longest", "shown", "window"),
    [
        (None, hours(24), hours(168), "24h", hours(24)),
        (None, hours(12), hours(168), "12h", hours(12)),
        (None, None, hours(168), "none", None),
        ("24h", hours(24), hours(168), "24h", hours(24)),
        ("24h", hours(12), hours(12), "24h", hours(12)),
        ("24h", None, hours(168), "24h", None),
        ("1h", hours(24), hours(168), "1h", hours(1)),
        ("168h", hours(24), hours(168), "168h", hours(168)),
        ("48h", None, hours(48), "48h", hours(48)),
        ("none", None, hours(1), "none", None),
    ],
)
def test_a_window_is_shown_as_it_was_asked_for(
    asked: str | None, usual: timedelta | None, longest: timedelta, shown: str, window: timedelta | None
) -> None:
    assert window_of(asked, usual, longest) == (shown, window)


@pytest.mark.parametrize(("asked", "usual"), [("49h", hours(24)), ("49h", None), ("none", hours(24))])
def test_no_window_beyond_the_operators_is_given(asked: str, usual: timedelta | None) -> None:
    with pytest.raises(InvalidParameter) as raised:
        window_of(asked, usual, hours(48))
    assert raised.value.param == "completion_window"
    assert not is_allowed(asked, usual, hours(48))
