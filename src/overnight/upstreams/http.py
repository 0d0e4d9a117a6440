"""A pool of HTTP/1.1 connections to one upstream server, made for thousands of calls at once."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable, Mapping
from time import monotonic

from overnight.domain.limits import MIB
from overnight.upstreams.address import read_address
from overnight.upstreams.call import Broken, BrokenKind, Call, Endpoint, Reply
from overnight.upstreams.connection import Connection
from overnight.upstreams.idle import Idle
from overnight.upstreams.opening import CannotOpenError, Opener
from overnight.upstreams.proxy import find_proxy
from overnight.upstreams.request import Heads

__all__ = ["Broken", "BrokenKind", "Call", "Endpoint", "Pool", "Reply"]

# More at once would overflow the accept queue of an ordinary server, whose kernel then drops us for seconds.
_MOST_OPENING = 100
_MOST_HEADS = 64


class Pool:
    """Connections to one endpoint, to be used from one event loop.

    There is no task, future or timer for a call on a kept connection: the connection carries the call, and one sweep
    a `sweep_seconds` ends what has run out of time. Calls that find no connection wait in order while more are opened.

    A call is never sent twice. A kept connection that the server has closed is noticed before it is written to; a
    connection that ends later may have had its request processed, and its call ends as CLOSED or CUT.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        most_connections: int = 20_000,
        connect_timeout: float = 10.0,
        most_reply_bytes: Callable[[], int] = lambda: 64 * MIB,
        idle_seconds: float = 4.0,
        sweep_seconds: float = 1.0,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Times are in seconds. `idle_seconds` stays below the 5 s after which uvicorn closes an idle connection.

        `most_reply_bytes` is asked while replies come: what it returns may change.

        `environment` names the proxies; None is the process's own. ValueError when the endpoint's certificates or
        the proxy make no sense.
        """
        address = read_address(endpoint.base_url)
        proxy = find_proxy(address, os.environ if environment is None else environment)
        self._opener = Opener(address, proxy, endpoint.ca_file, connect_timeout)
        self._heads = Heads(endpoint, address, proxy)
        self._known_heads: dict[tuple[str, str], bytes] = {}
        self._most_connections = most_connections
        self._most_reply_bytes = most_reply_bytes
        self._idle_seconds = idle_seconds
        self._sweep_seconds = sweep_seconds
        self._loop = asyncio.get_running_loop()
        self._connections: set[Connection] = set()
        self._idle = Idle()
        self._waiting: deque[Call] = deque()
        self._opening: set[asyncio.Task[None]] = set()
        self._sweeper: asyncio.TimerHandle | None = None
        self._closed = False
        self._emptied = asyncio.Event()

    # -- what callers do ---------------------------------------------------------------------------------------

    def send(self, *calls: Call) -> None:
        """Send requests; the outcome of each goes to its call's `on_end`, never before this returns.

        ValueError when a call's method, path or headers could not stand in a request, or it was sent before; nothing
        is sent then.
        """
        for call in calls:
            call.head = self._head_of(call)
            if call.began:
                raise ValueError("A call can be sent only once.")
        now = monotonic()
        for call in calls:
            call.began = now
            call.deadline = now + call.timeout
        if self._closed:
            for call in calls:
                self.end_soon(call, Broken(BrokenKind.CANCELLED, "The pool of connections is closed.", sent=False))
            return
        if self._sweeper is None:
            self._sweeper = self._loop.call_later(self._sweep_seconds, self._sweep)
        self._waiting.extend(calls)
        self._serve_waiting(now)

    def cancel(self, call: Call) -> None:
        """Give up a call: its connection is closed, its outcome is CANCELLED. A call that has ended stays as it is."""
        if call.ended or not call.began:
            return
        if call.connection is not None:
            call.connection.break_off(BrokenKind.CANCELLED, "The call was given up.")
        else:
            self.end_soon(call, Broken(BrokenKind.CANCELLED, "The call was given up.", sent=False))

    async def ask(self, method: str, path: str, body: bytes = b"", timeout: float = 10.0) -> Reply | Broken:
        """Send a request and wait for its outcome; for paths where speed does not matter."""
        outcome: asyncio.Future[Reply | Broken] = self._loop.create_future()

        def end(_: Call, came: Reply | Broken) -> None:
            if not outcome.done():
                outcome.set_result(came)

        call = Call(path, body, timeout, None, end, method)
        self.send(call)
        try:
            return await outcome
        finally:
            self.cancel(call)

    async def close(self) -> None:
        """Give up all calls and close all connections; afterwards every `on_end` has been called."""
        self._closed = True
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None
        for task in self._opening:
            task.cancel()
        if self._opening:
            await asyncio.wait(self._opening)
        while self._waiting:
            self.cancel(self._waiting.popleft())
        for connection in list(self._connections):
            connection.break_off(BrokenKind.CANCELLED, "The pool of connections was closed.")
        if self._connections:
            self._emptied.clear()
            await self._emptied.wait()
        # The outcomes were put on the loop before this and are therefore told before it goes on.
        await asyncio.sleep(0)

    # -- what connections tell ---------------------------------------------------------------------------------

    def keep(self, connection: Connection) -> None:
        """A connection is free: the call that waits longest gets it, else it lies idle on top of the others."""
        now = monotonic()
        self._idle.add(connection, now)
        if self._waiting:
            self._serve_waiting(now)

    def lose(self, connection: Connection) -> None:
        """A connection is gone."""
        self._connections.discard(connection)
        self._idle.discard(connection)
        if not self._connections:
            self._emptied.set()
        self._open_more()

    def end_soon(self, call: Call, broken: Broken) -> None:
        """End a call that came to nothing, from the loop, so that no caller is called back inside its own call."""
        call.ended = True
        call.connection = None
        self._loop.call_soon(call.on_end, call, broken)

    # -- connections and waiting calls -------------------------------------------------------------------------

    def _head_of(self, call: Call) -> bytes:
        if call.headers:
            return self._heads.of(call.method, call.path, call.headers)
        key = (call.method, call.path)
        head = self._known_heads.get(key)
        if head is None:
            head = self._heads.of(call.method, call.path, ())
            if len(self._known_heads) < _MOST_HEADS:
                self._known_heads[key] = head
        return head

    def _next_waiting(self) -> Call | None:
        while self._waiting:
            call = self._waiting.popleft()
            if not call.ended:
                return call
        return None

    def _serve_waiting(self, now: float) -> None:
        """Bring waiting calls and idle connections together."""
        while self._waiting and (free := self._idle.take(len(self._waiting), now)):
            while free and (call := self._next_waiting()) is not None:
                free.pop().start(call, b"".join((call.head, b"%d\r\n\r\n" % len(call.body), call.body)))
                # It is not sent a second time, and ten thousand of them would be kept until their replies come.
                call.body = b""
            self._idle.put_back(free)
        if self._waiting:
            self._open_more()

    def _open_more(self) -> None:
        """Open a connection for each waiting call, within the limits."""
        room = min(_MOST_OPENING, self._most_connections - len(self._connections))
        while len(self._opening) < min(room, len(self._waiting)) and not self._closed:
            task = self._loop.create_task(self._open())
            self._opening.add(task)
            task.add_done_callback(self._opening.discard)

    async def _open(self) -> None:
        began = monotonic()
        failure: CannotOpenError | None = None
        try:
            connection = await self._opener.open(self._make_connection)
        except CannotOpenError as error:
            failure = error
        finally:
            self._opening.discard(_this_task())
        if failure is not None:
            self._fail_waiting(failure, began)
            return
        if connection.closed:
            told = "The server closed the connection as soon as it was opened."
            self._fail_waiting(CannotOpenError(BrokenKind.CLOSED, told), began)
            return
        self._connections.add(connection)
        self.keep(connection)

    def _make_connection(self) -> Connection:
        return Connection(self, self._most_reply_bytes, self._idle_seconds)

    def _fail_waiting(self, error: CannotOpenError, began: float) -> None:
        """End calls for which no connection could be opened.

        While others are open the server is there, and one failed attempt is one failed call. With none open, the
        calls that were waiting when the attempt began share its failure, for the others' attempts would end alike.
        """
        if self._connections and error.kind is BrokenKind.NO_SOCKET:
            # They can still go out on the connections there are; the sweep tries to open more.
            return
        broken = Broken(error.kind, error.message, sent=False)
        waiting = self._waiting
        if self._connections:
            call = self._next_waiting()
            if call is not None:
                self.end_soon(call, broken)
        else:
            while waiting and (waiting[0].ended or waiting[0].began <= began):
                call = waiting.popleft()
                if not call.ended:
                    self.end_soon(call, broken)
        self._open_more()

    # -- what runs out of time ---------------------------------------------------------------------------------

    def _sweep(self) -> None:
        now = monotonic()
        for connection in list(self._connections):
            call = connection.call
            if call is None:
                if now - connection.idle_since > connection.keep_seconds:
                    self._idle.discard(connection)
                    connection.close()
            elif call.deadline <= now:
                connection.break_off(BrokenKind.TIMEOUT, f"No whole reply came within {call.timeout:g} s.")
        self._sweep_waiting(now)
        self._open_more()
        if self._connections or self._waiting or self._opening:
            self._sweeper = self._loop.call_later(self._sweep_seconds, self._sweep)
        else:
            self._sweeper = None

    def _sweep_waiting(self, now: float) -> None:
        for _ in range(len(self._waiting)):
            call = self._waiting.popleft()
            if call.ended:
                continue
            if call.deadline > now:
                self._waiting.append(call)
            elif len(self._connections) >= self._most_connections:
                told = f"None of the {self._most_connections:,} connections became free within {call.timeout:g} s."
                self.end_soon(call, Broken(BrokenKind.NO_SOCKET, told, sent=False))
            else:
                told = f"No connection could be opened within {call.timeout:g} s."
                self.end_soon(call, Broken(BrokenKind.CONNECT_TIMEOUT, told, sent=False))


def _this_task() -> asyncio.Task[None]:
    task: asyncio.Task[None] | None = asyncio.current_task()
    assert task is not None
    return task
