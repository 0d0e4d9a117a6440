"""What goes wrong with a local engine in a way the person who started it has to know."""

from __future__ import annotations

from overnight.domain.errors import Unusable


class EngineError(Unusable):
    """The local engine cannot serve: its text is one sentence or two that say why and what to do."""
