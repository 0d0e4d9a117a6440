"""The command line: one module a command."""

from __future__ import annotations

import sys


def main() -> None:
    """Run `overnight` with the process's arguments and end the process with its exit code."""
    try:
        from overnight.cli.streams import open_closed, show_all_characters

        open_closed()
        show_all_characters()
        from overnight.cli.app import run

        sys.exit(run(sys.argv[1:]))
    except KeyboardInterrupt:
        # It may come while all of this is being imported, too.
        sys.exit(130)
