"""Whether there is an NVIDIA GPU that this process may use."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

NVIDIA_GPUS = Path("/proc/driver/nvidia/gpus")
LONGEST_LOOK = 10.0


def has_cuda() -> bool:
    """Seen without a library of NVIDIA's: by its driver, or by its program."""
    if os.environ.get("CUDA_VISIBLE_DEVICES", "all").strip() in ("", "-1", "NoDevFiles"):
        return False
    try:
        if any(NVIDIA_GPUS.iterdir()):
            return True
    except OSError:
        pass
    program = shutil.which("nvidia-smi")
    if program is None:
        return False
    try:
        told = subprocess.run([program, "-L"], capture_output=True, timeout=LONGEST_LOOK, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return False
    return told.returncode == 0 and b"GPU" in told.stdout
