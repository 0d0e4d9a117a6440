"""Runs every benchmark, prints its tables, and at the end what was measured beside the budgets."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.budgets import NOTES, read_notes, summary

PARTS = (
    "upstream_pool",
    "dispatch",
    "growth",
    "processes",
    "takeover",
    "interactive",
    "fairness",
    "idle",
    "validate",
    "upload",
    "results",
    "sizes",
    "room",
    "room_engine",
    "lanes",
    "engine",
)


def main() -> int:
    """Run each in a process of its own, so that none inherits another's memory; end with 1 if one failed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a smaller version of each, to see that they work")
    parser.add_argument("--only", action="append", metavar="PART", choices=PARTS, help=f"one of: {', '.join(PARTS)}")
    given = parser.parse_args()
    failed = []
    with tempfile.TemporaryDirectory() as folder:
        notes = Path(folder) / "notes"
        notes.touch()
        for part in given.only or PARTS:
            print(f"\n## {part}\n", flush=True)
            began = time.monotonic()
            command = [sys.executable, "-m", f"benchmarks.{part}", *(["--quick"] if given.quick else [])]
            ended = subprocess.run(command, env={**os.environ, NOTES: str(notes)}, check=False)
            failed += [part] if ended.returncode else []
            print(f"\n({time.monotonic() - began:.0f} s)", flush=True)
        print(f"\n## Beside the budgets{' (a smaller version: not to be relied on)' if given.quick else ''}\n")
        print("\n".join(summary(read_notes(notes))))
    if failed:
        print(f"\nThese failed: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
