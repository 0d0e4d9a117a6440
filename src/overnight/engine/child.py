"""One life of an engine's process, from its start to its end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import signal
from asyncio.subprocess import PIPE, Process
from dataclasses import dataclass, field

from overnight.engine.launch import Launch
from overnight.engine.log import EngineLog
from overnight.engine.progress import Progress

LONGEST_FACT = 64 * 1024
LOOK_EVERY = 0.1
LOOK_AT_LOADING_EVERY = 10.0
LAST_WORDS = 2.0
"""Seconds that a process which failed to load has to end by itself."""


@dataclass(frozen=True, slots=True)
class Ready:
    """The process has loaded its model and answers at `base_url`."""

    base_url: str
    slots: int
    context_length: int


@dataclass(frozen=True, slots=True)
class Failed:
    """The process did not get as far as answering; `reason` is its own word for it, if it had one."""

    reason: str | None


@dataclass(slots=True)
class Child:
    """A started process. Each has a key of its own: the address of the last may belong to someone else now."""

    launch: Launch
    process: Process
    stdin: asyncio.StreamWriter
    stdout: asyncio.StreamReader
    stderr: asyncio.StreamReader
    api_key: str = field(repr=False)
    serves: bool = False
    """Requests may have reached it, so that its log may tell of them."""

    @classmethod
    async def start(cls, launch: Launch) -> Child:
        """Start the process. Raises OSError when the system cannot."""
        key = secrets.token_urlsafe(32)
        # In a session of its own, so that Ctrl-C in a terminal reaches only the parent, which decides.
        process = await asyncio.create_subprocess_exec(
            *launch.command, stdin=PIPE, stdout=PIPE, stderr=PIPE, limit=LONGEST_FACT, start_new_session=True
        )
        stdin, stdout, stderr = process.stdin, process.stdout, process.stderr
        if stdin is None or stdout is None or stderr is None:
            raise TypeError("the process was started without pipes")
        stdin.write(json.dumps({"api_key": key, "parent": os.getpid()}).encode() + b"\n")
        return cls(launch, process, stdin, stdout, stderr, key)

    async def keep_log(self, log: EngineLog) -> None:
        """Follow the process's standard error until it ends."""
        await log.follow(self.stderr, lambda line: not self.serves or self.launch.safe(line))

    async def loaded(self, within: float) -> Ready | Failed:
        """Wait for the process's word on its start, until it has read nothing of its model for `within` seconds.

        How long a model takes depends on its size and on the disk, so what is read is waited for without a limit.
        """
        try:
            line = await self._first_line(within)
        except TimeoutError:
            return Failed(
                f"it did not finish loading, and read nothing for {within:,.0f} seconds (--engine-load-timeout)"
            )
        except ValueError:
            return Failed("it said something that is not its ready line")
        fact = _read(line)
        if isinstance(fact, Failed):
            # It is on its way out; ended by us it could not tell how it would have ended.
            await self.exited(LAST_WORDS)
        return fact

    async def _first_line(self, within: float) -> bytes:
        progress, clock = Progress(self.process.pid), asyncio.get_running_loop().time
        gives_up_at = clock() + within
        while True:
            try:
                async with asyncio.timeout(min(within, LOOK_AT_LOADING_EVERY)):
                    return await self.stdout.readline()
            except TimeoutError:
                if progress.is_made():
                    gives_up_at = clock() + within
                elif clock() >= gives_up_at:
                    raise

    async def exited(self, within: float) -> bool:
        """Wait for the process's end, at most `within` seconds; whether it has come."""
        ends = asyncio.get_running_loop().time() + within
        while self.process.returncode is None and (left := ends - asyncio.get_running_loop().time()) > 0:
            # The wait is also for its pipes, which processes that it started may hold open.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(left, LOOK_EVERY)):
                    await self.process.wait()
        return self.process.returncode is not None

    async def end(self, grace: float) -> None:
        """SIGTERM, and SIGKILL for it and all that it started, after `grace` seconds or when we are cancelled."""
        try:
            self._signal(signal.SIGTERM)
            await self.exited(grace)
        finally:
            self.kill()
            self.stdin.close()
        await self.exited(LAST_WORDS)
        with contextlib.suppress(TimeoutError, ValueError):
            # To its end, which comes at once unless a process of another group has it, too.
            async with asyncio.timeout(LAST_WORDS):
                await self.stdout.read()

    def kill(self) -> None:
        """SIGKILL for the process and for those of its group that it left behind."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            # macOS refuses it where only dead processes are left.
            self._signal(signal.SIGKILL)

    def how_it_ended(self) -> str:
        """The end of a sentence that begins with the process."""
        code = self.process.returncode
        if code is None:
            return "still runs"
        if code >= 0:
            return f"ended with exit code {code}"
        try:
            return f"was ended by {signal.Signals(-code).name}"
        except ValueError:
            return f"was ended by signal {-code}"

    def _signal(self, number: signal.Signals) -> None:
        if self.process.returncode is not None:
            return
        try:
            # Not through the process object: it would collect the exit code that asyncio waits for.
            os.kill(self.process.pid, number)
        except ProcessLookupError:
            pass


async def wait_in_turns(task: asyncio.Task[None], within: float) -> None:
    """Wait for a task, at most `within` seconds in which this process had its turns.

    Time in which the machine stood still is none: what the task waits for may be there since, and nobody has looked.
    """
    for _ in range(int(within / LOOK_EVERY)):
        done, _running = await asyncio.wait([task], timeout=LOOK_EVERY)
        if done:
            return


def _read(line: bytes) -> Ready | Failed:
    if not line:
        return Failed(None)
    try:
        fact = json.loads(line)
        if "failed" in fact:
            return Failed(fact["failed"])
        return Ready(fact["url"], fact["slots"], fact["context_length"])
    except (ValueError, TypeError, KeyError):
        return Failed("it said something that is not its ready line")
