"""Runs every benchmark and prints its table."""

from __future__ import annotations

import subprocess
import sys

PARTS = (
    "upstream_pool",
    "validate",
    "dispatch",
    "room",
    "upload",
    "results",
    "sizes",
    "fairness",
    "lanes",
    "interactive",
)


def main() -> int:
    """Run each in a process of its own, so that none inherits another's memory; end with 1 if one failed."""
    failed = 0
    for part in PARTS:
        print(f"\n## {part}\n", flush=True)
        failed += subprocess.run([sys.executable, "-m", f"benchmarks.{part}"], check=False).returncode != 0
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
