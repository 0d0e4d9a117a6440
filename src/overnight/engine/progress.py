"""Whether an engine that loads gets on: what its processes have read so far. Only Linux tells."""

from __future__ import annotations

import os
from pathlib import Path

PROC = Path("/proc")
WORTH = 1 << 20
"""Bytes between two looks; what processes read of pipes while they wait for one another is less."""


class Progress:
    """Follows the processes of one group.

    Their CPU time says nothing: GPUs that wait for one another for ever keep their processors busy.
    """

    def __init__(self, group: int) -> None:
        self._group = group
        self._read = bytes_read(group)

    def is_made(self) -> bool:
        """Whether they have read what is worth the name since the last look."""
        before, self._read = self._read, bytes_read(self._group)
        return self._read >= before + WORTH


def bytes_read(group: int) -> int:
    """What the processes of a group that live now have read, whether by calls or by looking into mapped files."""
    found = 0
    for process in PROC.iterdir() if PROC.is_dir() else ():
        try:
            if not process.name.isdecimal() or os.getpgid(int(process.name)) != group:
                continue
            fields = dict(line.split(": ") for line in (process / "io").read_text().splitlines())
            found += int(fields["rchar"]) + int(fields["read_bytes"])
        except (OSError, ValueError, KeyError):
            # It has ended meanwhile, or this system does not count.
            continue
    return found
