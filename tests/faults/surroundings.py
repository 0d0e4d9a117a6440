"""What surrounds a process: a clock that is off, a disk that is small."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SOURCE = Path(__file__).with_name("shifted_clock.c")
DISK_MB = 200
"""An empty PostgreSQL takes some 60 MB."""


def shifted_clock(folder: Path, seconds: int) -> dict[str, str] | None:
    """Variables under which a process has its wall clock off by so much; None where that cannot be done here."""
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if compiler is None or sys.platform != "linux":
        return None
    folder.mkdir(parents=True, exist_ok=True)
    library = folder / "shifted_clock.so"
    built = subprocess.run(
        [compiler, "-O1", "-shared", "-fPIC", "-o", str(library), str(SOURCE), "-ldl"], capture_output=True, check=False
    )
    if built.returncode != 0:
        return None
    env = {"LD_PRELOAD": str(library), "SHIFTED_CLOCK": str(seconds)}
    # Whether it works here is seen, not believed.
    asked = subprocess.run(
        [sys.executable, "-c", "import time; print(time.time())"], capture_output=True, check=True, env=os.environ | env
    )
    return env if abs(float(asked.stdout) - time.time() - seconds) < 600 else None


@contextmanager
def small_disk(folder: Path) -> Iterator[Path | None]:
    """A folder on a small disk of its own, None where none may be mounted: that takes root on Linux."""
    folder.mkdir(parents=True, exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MB}m,mode=755", "tmpfs", str(folder)]
    if sys.platform != "linux" or os.geteuid() != 0 or subprocess.run(command, check=False).returncode != 0:
        yield None
        return
    try:
        yield folder
    finally:
        _unmount(folder)


def _unmount(folder: Path) -> None:
    """PostgreSQL stops a moment after its last user."""
    for _ in range(100):
        if subprocess.run(["umount", str(folder)], capture_output=True, check=False).returncode == 0:
            return
        time.sleep(0.2)
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


@contextmanager
def no_space_left(disk: Path) -> Iterator[None]:
    """Fill the disk to the last byte while the block runs."""
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file:
        try:
            size = 2**20
            while size >= 512:
                try:
                    file.write(b"\0" * size)
                except OSError:
                    size //= 2
            yield
        finally:
            ballast.unlink()
