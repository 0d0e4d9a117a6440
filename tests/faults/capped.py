"""Starts one process that runs requests under a cap, with a short life: `capped.py DATABASE UPSTREAM FOLDER CAP`."""

from __future__ import annotations

import os
import sys
from datetime import timedelta
from pathlib import Path

from overnight.store import life

DEAD_AFTER = 4.0


def main(database: str, upstream: str, folder: str, cap: str) -> None:
    """Serve until the end; it is declared dead after 4 seconds of silence instead of 10."""
    os.environ["BATCH_MODEL_CONCURRENCY"] = cap
    life.DEAD_AFTER = timedelta(seconds=DEAD_AFTER)
    life.MAY_START_WITHIN = DEAD_AFTER / 2
    life.CUT_OFF_AFTER = DEAD_AFTER - 1.0
    life.BEAT_EVERY = 0.5
    # Only now, since these take their times from there.
    from overnight.cli.serve import _serve, run_loop
    from overnight.domain import events
    from overnight.domain.limits import Limits
    from overnight.settings import Part, Settings, Upstream

    events.set_up_logging("info", as_json=True)
    settings = Settings(
        Path(folder),
        port=0,
        database_url=database,
        upstreams=(Upstream(upstream, slots=32),),
        parts=frozenset({Part.WORKER, Part.UPKEEP}),
        limits=Limits(per_model=int(cap)),
        grace_seconds=1.0,
    )
    run_loop(_serve(settings))


if __name__ == "__main__":
    main(*sys.argv[1:])
