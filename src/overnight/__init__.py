"""Overnight: batch inference on your own models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from overnight.client import AsyncClient, Client

__all__ = ["AsyncClient", "Client", "__version__"]

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    # Read on first use: processes that have no use for a client import this package, too, and are to stay small.
    if name in ("AsyncClient", "Client"):
        from overnight import client

        return getattr(client, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
