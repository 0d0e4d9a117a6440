"""Who is calling."""

from __future__ import annotations

from overnight.api.deps import Request, deps_of


def authorise(request: Request) -> int:
    """The account that the call belongs to.

    In local mode there is one owner, and whatever key a client library sends is accepted and ignored.
    """
    return deps_of(request).owner
