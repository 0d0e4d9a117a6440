"""What the handlers of one process work with."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from litestar import Request as LitestarRequest
from litestar.datastructures import State
from litestar.enums import HttpMethod

from overnight.catalog.routes import Routes
from overnight.domain.errors import BatchesOff, InsufficientStorage
from overnight.domain.limits import Limits
from overnight.loops import Bell
from overnight.store.life import Life
from overnight.store.pool import Store

Request: TypeAlias = LitestarRequest[Any, Any, State]

OF_BATCHES = ("/v1/batches", "/v1/files", "/v1/uploads")
"""Where the paths begin that an operator may turn off."""

READ = [HttpMethod.GET, HttpMethod.HEAD]
"""The methods of a route that only shows: the HTTP server itself leaves the body out for HEAD."""


@dataclass(frozen=True, slots=True)
class Deps:
    """Made once by the process; every handler finds it with `deps_of`."""

    store: Store
    limits: Limits
    owner: int
    """The account that calls belong to while no keys are asked for."""
    health: Callable[[], Awaitable[str | None]]
    """Why this process cannot do its work now; None when it is well."""
    bell: Bell
    """Rung when there may be something new to run or to stop."""
    routes: Routes = field(default_factory=Routes)
    """By which interactive requests reach their models."""
    life: Life | None = None
    hosts: frozenset[str] = frozenset()
    """Host names, beside the loopback ones, under which callers may address this process."""
    disk_is_low: Callable[[], bool] = lambda: False
    """Whether nothing new may be stored any more."""
    stalled_seconds: float = 60.0
    """How long a caller may be silent in the middle of sending a body."""


def deps_of(request: Request) -> Deps:
    """The process's `Deps`, from within a handler."""
    found: Deps = request.app.state.deps
    return found


def refuse_if_disk_is_low(deps: Deps) -> None:
    """Raise InsufficientStorage before anything of a call is read where it could not be kept."""
    if deps.disk_is_low():
        raise InsufficientStorage("The server's disk is almost full, and nothing was stored. Free some space first.")


async def refuse_if_off(request: Request) -> None:
    """Raise BatchesOff for a route of batches, files or uploads while the operator does not serve them.

    Waits for nothing. It is async because Litestar hands a plain function to a thread, for every call.
    """
    if not deps_of(request).limits.enabled and request.scope["path"].startswith(OF_BATCHES):
        raise BatchesOff("Batch inference is turned off on this server. What was stored is kept; ask the operator.")
