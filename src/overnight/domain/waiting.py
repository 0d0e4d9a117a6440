"""Why nothing of a batch can start now, where one cause stands in the way of all of it."""

from __future__ import annotations

from collections.abc import Collection

PAUSED = "paused"
NO_CAPACITY = "no_capacity"
MODEL_QUEUED = "model_queued"
NO_SERVER = "no_server"
DISK_FULL = "disk_full"
SERVER_LOADING = "server_loading"
SERVER_BUSY = "server_busy"
SERVER_DOWN = "server_down"
SERVER_UNREACHABLE = "server_unreachable"

SAYS = {
    PAUSED: "the batch is paused",
    NO_CAPACITY: "the cap of all models leaves no slot (BATCH_MODEL_CONCURRENCY less BATCH_INTERACTIVE_RESERVE)",
    MODEL_QUEUED: "the model waits for a machine at its server",
    NO_SERVER: "no process that runs serves the model",
    DISK_FULL: "the disk is almost full",
    SERVER_LOADING: "the model is loading",
    SERVER_BUSY: "the model server refuses more requests for now",
    SERVER_DOWN: "the local engine is down and will be started again",
    SERVER_UNREACHABLE: "the model server is unreachable or fails",
}
"""What each means, for people. """

# Of several servers the one that is told of is the one that will serve soonest.
_SERVERS = (SERVER_LOADING, SERVER_BUSY, SERVER_DOWN, SERVER_UNREACHABLE, DISK_FULL)


def waiting_for(
    *, is_paused: bool, cap: int | None, reserve: int, is_queued: bool, servers: Collection[str | None]
) -> str | None:
    """The cause, one of `SAYS`; None where requests may start or wait for nothing but their turn.

    `cap` is how many requests of a model may run at once, None without a limit, `reserve` what batches leave of it.
    `servers` tells of each that serves the model what blocks it, None where nothing does.
    """
    if is_paused:
        return PAUSED
    if cap is not None and cap <= reserve:
        return NO_CAPACITY
    if is_queued:
        return MODEL_QUEUED
    return cause_of(servers) if servers else NO_SERVER


def cause_of(servers: Collection[str | None]) -> str | None:
    """What blocks some servers; None where one of them is free."""
    return None if None in servers else next((cause for cause in _SERVERS if cause in servers), None)
