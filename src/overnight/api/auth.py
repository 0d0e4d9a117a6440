"""Who is calling."""

from __future__ import annotations

from overnight.api.deps import Deps, Request, deps_of


def authorise(request: Request) -> int:
    """The account that the call belongs to."""
    return account_of(deps_of(request))


def account_of(deps: Deps) -> int:
    """The account that a call belongs to, by what the process works with.

    In local mode there is one owner, and whatever key a client library sends is accepted and ignored.
    """
    return deps.owner
