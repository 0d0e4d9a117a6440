"""The window of a new batch: how long it may start its requests."""

from __future__ import annotations

from datetime import timedelta

from overnight.domain.errors import InvalidParameter

USUAL = "24h"
"""What OpenAI's clients always send: it asks for the window that the operator has set, whatever that is."""
NONE = "none"


def window_of(asked: str | None, usual: timedelta | None, longest: timedelta) -> tuple[str, timedelta | None]:
    """The window of a batch as it is shown, and what it is; None for a batch that has no end.

    `asked` is a number of hours such as `48h`, `none`, or None where nothing was asked for. `usual` is what the
    operator has set, None where windows are lifted; `longest` is the most that may be asked for. Raises
    InvalidParameter.
    """
    if asked is None:
        return (NONE if usual is None else _shown(usual)), usual
    if asked == USUAL:
        return asked, usual
    if asked == NONE:
        if usual is not None:
            raise InvalidParameter(
                "completion_window may be 'none' only where the operator has lifted it.", param=_FIELD
            )
        return asked, None
    window = timedelta(hours=int(asked[:-1]))
    if window > longest:
        says = f"completion_window must be a number of hours from '1h' to '{_shown(longest)}', such as '24h'."
        raise InvalidParameter(says, param=_FIELD)
    return asked, window


def is_allowed(asked: str, usual: timedelta | None, longest: timedelta) -> bool:
    """Whether a batch may have such a window."""
    try:
        window_of(asked, usual, longest)
    except InvalidParameter:
        return False
    return True


_FIELD = "completion_window"


def _shown(window: timedelta) -> str:
    return f"{round(window.total_seconds() / 3600)}h"
