"""Runs `overnight` as its command does, with short times where OVERNIGHT_FAULTS_TIMES says so: `launch.py serve …`.

A fault takes effect within seconds then; what follows from it is the same.
"""

from __future__ import annotations

import asyncio
import os
import signal
from datetime import timedelta
from pathlib import Path
from typing import Any

from overnight.catalog import circuit
from overnight.domain import backoff
from overnight.domain.concurrency import rule
from overnight.store import life

SHORT = "short"
DEAD_AFTER = {SHORT: 3.0, "real": 10.0}
"""Seconds without a heartbeat after which a worker is declared dead."""

_SHORT_TIMES: list[tuple[Any, str, Any]] = [
    (life, "DEAD_AFTER", timedelta(seconds=DEAD_AFTER[SHORT])),
    (life, "MAY_START_WITHIN", DEAD_AFTER[SHORT] / 2),
    (life, "CUT_OFF_AFTER", DEAD_AFTER[SHORT] - 1),
    (life, "BEAT_EVERY", 0.5),
    (circuit, "FIRST_PAUSE", 1.0),
    (circuit, "LONGEST_PAUSE", 2.0),
    (backoff, "FIRST", timedelta(seconds=0.5)),
    (backoff, "LONGEST", timedelta(seconds=2)),
    (rule, "REFUSED_PATIENCE", 2.0),
    (rule, "LONGEST_PAUSE", 2.0),
]


def _count_tasks(*_: object) -> None:
    """Write down how many tasks there are, for whoever asks by a signal."""
    file = Path(os.environ["OVERNIGHT_FAULTS_TASKS"])
    try:
        count = len(asyncio.all_tasks(asyncio.get_running_loop()))
    except RuntimeError:
        # It has only just begun, or is about to end.
        return
    file.with_suffix(".new").write_text(str(count))
    file.with_suffix(".new").rename(file)


def main() -> None:
    """Set the times before anything takes them from where they are kept."""
    signal.signal(signal.SIGUSR2, _count_tasks)
    if os.environ.get("OVERNIGHT_FAULTS_TIMES") == SHORT:
        for module, name, value in _SHORT_TIMES:
            assert hasattr(module, name), f"{module.__name__} has no {name}"
            setattr(module, name, value)
    from overnight.cli import main as command

    command()


if __name__ == "__main__":
    main()
