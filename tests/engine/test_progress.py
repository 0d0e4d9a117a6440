"""A load that gets on is waited for, however long it takes."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from overnight.engine import child
from overnight.engine.progress import Progress
from overnight.engine.supervise import LocalEngine
from overnight.engine.watch import Pace
from tests.engine.conftest import linux_only, small

READS = """
import os, sys
zeros = os.open("/dev/zero", os.O_RDONLY)
for line in sys.stdin:
    os.read(zeros, int(line) << 20)
    print("read", flush=True)
"""
STARTS = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {READS!r}])"
LOADS = """
input()
input()
print('{"url": "http://127.0.0.1:9", "slots": 1, "context_length": 1}', flush=True)
input()
"""


@linux_only
def test_what_the_processes_of_an_engine_read_is_seen() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", STARTS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as engine:
        assert engine.stdin is not None
        assert engine.stdout is not None

        def read(mebibytes: int) -> bool:
            print(mebibytes, file=engine.stdin, flush=True)
            assert engine.stdout is not None
            assert engine.stdout.readline() == "read\n"
            return progress.is_made()

        progress = Progress(engine.pid)
        read(0)
        assert [read(8), read(0), read(1), read(0)] == [True, False, True, False]
        engine.stdin.close()


async def test_a_load_that_reads_on_is_waited_for_however_long_it_takes(
    tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Reads:
        def __init__(self, group: int) -> None:
            self.looks = 0

        def is_made(self) -> bool:
            self.looks += 1
            if self.looks == 5:
                assert engine._child is not None
                engine._child.stdin.write(b"\n")
            return True

    monkeypatch.setattr(child, "Progress", Reads)
    launch = replace(small(tiny), command=(sys.executable, "-c", LOADS))
    async with LocalEngine(launch, pace=Pace(look_every=60, load_within=0.01, grace=0.1)) as engine:
        await engine.wait_ready()
        assert engine.state.starts == 1
