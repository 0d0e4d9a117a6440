"""The command line: one module a command."""

from __future__ import annotations

import sys


def main() -> None:
    """Run `overnight` with the process's arguments and end the process with its exit code."""
    from overnight.cli.app import run
    from overnight.cli.streams import show_all_characters

    show_all_characters()
    sys.exit(run(sys.argv[1:]))
