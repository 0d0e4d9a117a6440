"""No engine outlives the process that started it, however that ends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.engine.conftest import LIMIT, gone, linux_only, small

PARENT = """
import asyncio, sys
from pathlib import Path
import uvloop
from overnight.engine.launch import llama_cpp
from overnight.engine.model import read_model
from overnight.engine.supervise import LocalEngine

async def main():
    launch = llama_cpp(read_model(Path(sys.argv[1])), slots=1, context_length=256, threads=1)
    async with LocalEngine(launch) as engine:
        await engine.wait_ready()
        print(engine.pid, flush=True)
        await asyncio.Event().wait()

uvloop.run(main())
"""


@linux_only
def test_when_its_parent_is_killed_the_engine_goes_too(tiny: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT, str(tiny)], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        pidfd = os.pidfd_open(int(parent.stdout.readline()))
        parent.kill()

    assert gone(pidfd)


BETWEEN = """
import subprocess, sys
child = subprocess.Popen(sys.argv[1:], stdin=0)
print(child.pid, flush=True)
child.wait()
"""


@linux_only
def test_a_parent_whose_pipe_someone_else_holds_open_still_takes_the_engine_along(tiny: Path) -> None:
    """Here the kernel's signal alone must do it."""
    with subprocess.Popen(
        [sys.executable, "-c", BETWEEN, *small(tiny).command], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as parent:
        assert parent.stdin is not None
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        parent.stdin.write(json.dumps({"api_key": "k", "parent": parent.pid}).encode() + b"\n")
        parent.stdin.flush()
        assert b"url" in parent.stdout.readline()
        pidfd = os.pidfd_open(child)
        parent.kill()

        assert gone(pidfd)


def test_the_end_of_its_input_ends_the_engine(tiny: Path) -> None:
    """Where there is no signal at a parent's death, the closed pipe tells of it."""
    with started(tiny, parent=os.getpid()) as child:
        assert child.stdout is not None
        assert child.stdin is not None
        assert b"url" in child.stdout.readline()

        child.stdin.close()

        assert ended(child) == 1


def test_an_engine_whose_parent_died_before_it_looked_does_not_start(tiny: Path) -> None:
    with started(tiny, parent=os.getppid()) as child:
        assert ended(child) == 1
        assert child.stdout is not None
        assert child.stdout.read() == b""


def started(tiny: Path, parent: int) -> subprocess.Popen[bytes]:
    """An engine's process that is told that `parent` is its parent, its input left open."""
    child = subprocess.Popen(small(tiny).command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdin is not None
    child.stdin.write(json.dumps({"api_key": "k", "parent": parent}).encode() + b"\n")
    child.stdin.flush()
    return child


def ended(child: subprocess.Popen[bytes]) -> int:
    """The exit code of a process that ends by itself; it is killed when it does not."""
    try:
        return child.wait(LIMIT)
    finally:
        child.kill()
