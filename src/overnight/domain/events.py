"""The facts worth telling: level, sentence and counter of each. Keys, prompts and answers are never among them."""

from __future__ import annotations

import logging
import sys
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import structlog
from prometheus_client import Counter, Gauge


@dataclass(frozen=True, slots=True)
class _Fact:
    level: int
    says: str


FACTS = {
    "started": _Fact(logging.INFO, "Overnight is up"),
    "stopping": _Fact(
        logging.INFO, "stopping: running requests may finish, the rest is handed back; a second signal ends them, too"
    ),
    "migrated": _Fact(logging.INFO, "the database was brought to this version's schema"),
    "round_failed": _Fact(logging.ERROR, "a round failed and will come again"),
    "request_failed": _Fact(logging.ERROR, "an API call ended in an unexpected fault"),
    "file_stored": _Fact(logging.INFO, "a file was stored"),
    "file_deleted": _Fact(logging.INFO, "a file was deleted"),
    "batch_created": _Fact(logging.INFO, "a batch was created"),
    "batch_refused": _Fact(logging.INFO, "a batch was refused: its input has problems"),
    "batch_started": _Fact(logging.INFO, "a batch was checked and may run"),
    "batch_cancelling": _Fact(logging.INFO, "a batch is being cancelled"),
    "batch_closed": _Fact(logging.WARNING, "a batch's window closed before it was done"),
    "batch_late": _Fact(logging.WARNING, "a batch's window will close before it is done, at the pace it had so far"),
    "model_queued_long": _Fact(logging.WARNING, "a model has waited long for a machine; its batches wait with it"),
    "model_queued_no_more": _Fact(logging.INFO, "a model that had waited long for a machine waits no more"),
    "batch_paused": _Fact(logging.INFO, "a batch was paused by its owner"),
    "batch_resumed": _Fact(logging.INFO, "a batch was resumed by its owner"),
    "batch_deleted": _Fact(logging.INFO, "a batch was deleted"),
    "days_dropped": _Fact(logging.INFO, "tables of days of which no batch is left were dropped"),
    "batch_ended": _Fact(logging.INFO, "a batch reached its final state"),
    "worker_registered": _Fact(logging.INFO, "this process may run requests"),
    "worker_declared_dead": _Fact(logging.WARNING, "a worker's heartbeat went stale: its blocks go back"),
    "worker_gone": _Fact(logging.WARNING, "a worker's process on this machine is gone: its blocks go back"),
    "worker_was_dead": _Fact(logging.ERROR, "this worker was declared dead; it starts over under a new number"),
    "worker_cut_off": _Fact(logging.WARNING, "the heartbeat was not confirmed for too long: what ran is given up"),
    "answer_conflict": _Fact(logging.CRITICAL, "a request was about to be answered twice: the flush was refused"),
    "blocks_handed_back": _Fact(logging.INFO, "unfinished blocks were handed back"),
    "surplus_given_back": _Fact(logging.INFO, "requests that could not start soon go to others with free slots"),
    "try_failed": _Fact(logging.DEBUG, "a try at a request failed"),
    "route_down": _Fact(logging.WARNING, "a model server cannot be used; its requests wait"),
    "route_up": _Fact(logging.INFO, "a model server can be used"),
    "models_listed": _Fact(logging.INFO, "a model server listed its models"),
    "engine_starting": _Fact(logging.INFO, "the local engine is starting"),
    "engine_cut": _Fact(logging.WARNING, "a local engine gets less than was asked for or than its model could use"),
    "engine_ready": _Fact(logging.INFO, "the local engine is ready"),
    "engine_down": _Fact(logging.WARNING, "the local engine is down and will be started again"),
    "database_lost": _Fact(logging.WARNING, "the database cannot be reached"),
    "database_back": _Fact(logging.INFO, "the database can be reached again"),
    "incremental_failed": _Fact(logging.ERROR, "an incremental file could not be written and will be tried again"),
    "disk_low": _Fact(logging.ERROR, "the disk is almost full: nothing new is accepted or started"),
    "disk_has_room": _Fact(logging.INFO, "the disk has room again: requests may start"),
}

COUNTED = Counter("overnight_events", "How often each fact was told.", ["event"])
for _name in FACTS:
    # From zero on: what counts an increase does not see a first time that comes with the series itself.
    COUNTED.labels(_name)

_ALLOWED = Gauge("overnight_route_allowed", "Requests that may be in flight on a route now.", ["route"])
_IN_FLIGHT = Gauge("overnight_route_in_flight", "Requests in flight on a route.", ["route"])
_WHY = Gauge("overnight_route_why", "1 beside what keeps the number allowed from growing.", ["route", "why"])

_log = structlog.get_logger("overnight")


def tell(event: str, error: BaseException | None = None, /, **facts: Any) -> None:
    """Tell a fact once: it is counted, and logged at its level with the values given."""
    fact = FACTS[event]
    COUNTED.labels(event).inc()
    if error is not None:
        facts["error"] = f"{type(error).__name__}: {error}"
    _log.log(
        fact.level,
        fact.says,
        event_name=event,
        exc_info=error if fact.level >= logging.ERROR else None,
        **facts,
    )


def show_room(route: str, *, allowed: int, in_flight: int, why: str, before: str) -> None:
    """Show how many requests a route may have and has, and why not more; `before` is the reason shown last."""
    _ALLOWED.labels(route).set(allowed)
    _IN_FLIGHT.labels(route).set(in_flight)
    if why != before:
        _WHY.labels(route, before).set(0)
        _WHY.labels(route, why).set(1)


class _ToStandardError:
    """Writes to what standard error is now. Where nobody reads it any more, lines are lost and nothing else is."""

    def __init__(self, *_: object) -> None:
        pass

    def msg(self, line: str) -> None:
        with suppress(OSError, ValueError):
            sys.stderr.write(line + "\n")
            sys.stderr.flush()

    log = debug = info = warning = error = critical = msg


def _without_name(_: object, __: str, facts: Any) -> Any:
    """People have the sentence."""
    facts.pop("event_name", None)
    return facts


def set_up_logging(level: str = "info", *, as_json: bool = False) -> None:
    """Send facts of `level` and above to standard error: for people, or a JSON object a line for programs."""
    render: Any = (
        structlog.processors.JSONRenderer()
        if as_json
        else structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(),
            sort_keys=False,
            # The default shows local variables: prompts and answers would be among them.
            exception_formatter=structlog.dev.plain_traceback,
        )
    )
    processors: list[Any] = [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso" if as_json else "%Y-%m-%dT%H:%M:%SZ", utc=True),
    ]
    processors.append(structlog.processors.format_exc_info if as_json else _without_name)
    structlog.configure(
        processors=[*processors, render],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=_ToStandardError,
        cache_logger_on_first_use=False,
    )
    # Libraries would print raw lines, with tracebacks, between ours; what matters of it is told as a fact.
    logging.getLogger().addHandler(logging.NullHandler())
