"""Starts a local engine, watches it, starts it again when it dies or hangs, and tells who wants to know."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import TracebackType

from overnight.engine.child import LAST_WORDS, Child, Failed, Ready, wait_in_turns
from overnight.engine.errors import EngineError
from overnight.engine.launch import Launch
from overnight.engine.log import EngineLog
from overnight.engine.memory import kills_for_memory
from overnight.engine.model import ModelFile
from overnight.engine.watch import Pace, Watch

FIRST_WAIT = 0.5
LONGEST_WAIT = 30.0


class Phase(StrEnum):
    """Where an engine stands. Only a ready one takes requests."""

    LOADING = "loading"
    READY = "ready"
    DOWN = "down"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class EngineState:
    """Where an engine stands, and why when it is not ready for a reason."""

    phase: Phase
    reason: str | None = None
    starts: int = 0
    """How often its process was started so far."""


class LocalEngine:
    """One supervised engine. Address and key change with every restart: read them when a request starts."""

    def __init__(self, launch: Launch, *, log_path: Path | None = None, pace: Pace | None = None) -> None:
        self.launch = launch
        self.log = EngineLog(log_path)
        self.pace = pace or Pace()
        self.state = EngineState(Phase.STOPPED)
        self._listeners: list[Callable[[EngineState], None]] = []
        self._changed = asyncio.Event()
        self._child: Child | None = None
        self._ready: Ready | None = None
        self._served_from: float | None = None
        """Since when its process serves, on the loop's clock; None while none does."""
        self._error: EngineError | None = None
        self._task: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"LocalEngine({self.model.id!r}, {self.state.phase})"

    @property
    def model(self) -> ModelFile:
        """The model it serves."""
        return self.launch.model

    @property
    def base_url(self) -> str | None:
        """`http://127.0.0.1:<port>`, without `/v1`; None while it is not ready."""
        return self._ready.base_url if self._ready and self.is_ready else None

    @property
    def api_key(self) -> str | None:
        """The key of the process that runs now; None while it is not ready."""
        return self._child.api_key if self._child and self.is_ready else None

    @property
    def pid(self) -> int | None:
        """The process that runs now, ready or not."""
        return self._child.process.pid if self._child else None

    @property
    def is_ready(self) -> bool:
        """Whether requests may be sent."""
        return self.state.phase is Phase.READY

    @property
    def slots(self) -> int:
        """Requests that run at once: what the engine said last, before that what it will be asked for."""
        return self._ready.slots if self._ready else self.launch.slots

    @property
    def context_length(self) -> int:
        """Tokens of one request, prompt and answer together; the engine may round up what was asked for."""
        return self._ready.context_length if self._ready else self.launch.context_length

    def on_change(self, call: Callable[[EngineState], None]) -> None:
        """Have `call` called in the event loop with every new state, in order. It must not raise."""
        self._listeners.append(call)

    async def start(self) -> None:
        """Begin to load and return at once. Starting twice is an error of the caller."""
        if self._task is not None:
            raise RuntimeError("the engine was already started")
        self._become(Phase.LOADING)
        # It outlives this call; `stop` cancels it and waits for it, and `wait_ready` tells of its failure.
        self._task = asyncio.create_task(self._supervise(), name=f"engine {self.model.id}")

    async def wait_ready(self) -> None:
        """Return when requests may be sent. Raises EngineError if its first start failed or it was stopped."""
        while not self.is_ready:
            if self._error is not None:
                raise self._error
            if self.state.phase is Phase.STOPPED:
                raise EngineError(f"The engine for {self.model.id} is stopped.")
            await self._next_change()

    async def stop(self) -> None:
        """End the process (SIGTERM, SIGKILL after the grace) and stay stopped. Harmless the second time."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            if not self._task.cancelled():
                self._task.result()
        if self.state.phase is not Phase.STOPPED:
            self._become(Phase.STOPPED)

    async def __aenter__(self) -> LocalEngine:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def _supervise(self) -> None:
        loop = asyncio.get_running_loop()
        failures = 0
        while True:
            reason = await self._live_once()
            if self._ready is None:
                self._error = EngineError(f"The engine cannot serve {self.model.path}: {reason}.")
                self._become(Phase.DOWN, reason)
                return
            served = self._served_from
            ran_well = served is not None and loop.time() - served >= self.pace.ran_well
            failures = 1 if ran_well else failures + 1
            self._become(Phase.DOWN, reason)
            await asyncio.sleep(restart_wait(failures))
            self._become(Phase.LOADING, reason)

    async def _live_once(self) -> str:
        """Run the process from its start to its end; returns why it ended."""
        self._served_from = None
        try:
            child = await Child.start(self.launch)
        except OSError as error:
            return f"its process cannot be started: {error}"
        self._child = child
        kills_before = kills_for_memory()
        try:
            async with asyncio.TaskGroup() as group:
                # Ends when the process does, so that all it said is known before the reason is looked for.
                following = group.create_task(child.keep_log(self.log))
                try:
                    reason = await self._load_and_watch(child)
                finally:
                    await child.end(self.launch.grace if self.pace.grace is None else self.pace.grace)
                    await wait_in_turns(following, LAST_WORDS)
                    following.cancel()
        finally:
            self._child = None
        return self._why(child, reason, kills_before)

    async def _load_and_watch(self, child: Child) -> str | None:
        """Returns why the process must be ended, or None when it ended by itself."""
        loaded = await child.loaded(self.pace.load_within)
        if isinstance(loaded, Failed):
            return loaded.reason
        child.serves = True
        self._ready = loaded
        self._served_from = asyncio.get_running_loop().time()
        self._become(Phase.READY)
        watch = Watch(child, loaded, self.pace)
        while not await child.exited(self.pace.look_every):
            reason = await watch.look()
            if reason is not None and child.process.returncode is None:
                # It does not look at signals it could handle either.
                child.kill()
                return reason
        return None

    def _why(self, child: Child, reason: str | None, kills_before: int | None) -> str:
        """Why the engine is down; `reason` is why it was ended where it did not end by itself."""
        if not child.serves:
            return reason or self._told_in_log(self.launch.cause) or f"its process {child.how_it_ended()}"
        told = reason or f"its process {child.how_it_ended()}"
        if reason is None and kills_before is not None and (kills_for_memory() or 0) > kills_before:
            # Where one of an engine's many processes is killed, the first ends by itself.
            killed = child.process.returncode == -signal.SIGKILL
            told += ", for lack of memory" if killed else ", and the system has killed processes for lack of memory"
        # Now most errors in its log are those of single requests.
        cause = self._told_in_log(self.launch.fatal)
        return told if cause is None else f"{told}: {cause}"

    def _told_in_log(self, read: Callable[[str], str | None]) -> str | None:
        cause = next((cause for cause in map(read, self.log.last) if cause), None)
        return cause and cause.rstrip(".")

    def _become(self, phase: Phase, reason: str | None = None) -> None:
        starts = self.state.starts + (phase is Phase.LOADING)
        self.state = EngineState(phase, reason, starts)
        self._changed.set()
        self._changed = asyncio.Event()
        for call in self._listeners:
            call(self.state)

    async def _next_change(self) -> None:
        await self._changed.wait()


def restart_wait(failures: int) -> float:
    """Seconds before the next start after so many failures in a row: 0.5 doubling to 30."""
    return min(LONGEST_WAIT, FIRST_WAIT * 2.0 ** min(failures - 1, 16))
