"""Real terminals: commands run in them as people run them, and what is on the screen afterwards.

Processes come from one that has imported the command line already, so that each begins at once.
"""

from __future__ import annotations

import codecs
import fcntl
import io
import multiprocessing
import os
import pty
import re
import select
import signal
import struct
import sys
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

_SEQUENCE = re.compile(r"\x1b\[([?]?)([\d;]*)([A-Za-z])")

_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload(["overnight.cli.app", "overnight.client", "uvloop", "tests.terminal"])


class Screen:
    """The lines of a terminal, as far as our commands use one: text, colours, moves up, clearing, the other screen."""

    def __init__(self, columns: int, rows: int) -> None:
        self.columns, self.rows = columns, rows
        self.lines: list[list[str]] = [[]]
        self.row = self.column = 0
        self.wrapped: list[str] = []
        """Lines that were longer than the terminal is wide."""
        self.drawn_over = 0
        """How often a line that was not empty was begun anew."""
        self.cursor_is_hidden = False
        self.is_other = False
        """The other screen is shown, which leaves the first as it was."""
        self.left: list[str] = []
        """What was on the other screen when it was left."""
        self._rest = ""
        self._first: tuple[list[list[str]], int, int] | None = None

    def feed(self, text: str) -> None:
        """Draw what was written."""
        text, at = self._rest + text, 0
        self._rest = ""
        while at < len(text):
            if text[at] == "\x1b":
                found = _SEQUENCE.match(text, at)
                if found is None:
                    self._rest = text[at:]
                    return
                self._obey(found[1], found[2], found[3])
                at = found.end()
            else:
                self._put(text[at])
                at += 1

    def resize(self, columns: int, rows: int) -> None:
        """Become larger or smaller: lines that are too long now are broken, and the cursor keeps its place in them."""
        self.columns, self.rows = columns, rows
        lines: list[list[str]] = []
        row, column = self.row, self.column
        for number, line in enumerate(self.lines):
            pieces = [line[at : at + columns] for at in range(0, len(line), columns)] or [[]]
            if number == self.row:
                below = min(self.column // columns, len(pieces) - 1)
                row, column = len(lines) + below, self.column - below * columns
            lines += pieces
        self.lines, self.row, self.column = lines, row, column

    def shown(self) -> list[str]:
        """The lines, without what is empty at their ends."""
        lines = ["".join(line).rstrip() for line in self.lines]
        while lines and not lines[-1]:
            lines.pop()
        return lines

    def _put(self, character: str) -> None:
        line = self.lines[self.row]
        if character == "\r":
            self.drawn_over += bool(line) and self.column > 0
            self.column = 0
        elif character == "\n":
            self.row += 1
            if self.row == len(self.lines):
                self.lines.append([])
        elif character >= " ":
            if self.column >= self.columns:
                self.wrapped.append("".join(line))
                self._put("\n")
                self.column, line = 0, self.lines[self.row]
            line.extend(" " * (self.column - len(line)))
            line[self.column : self.column + 1] = [character]
            self.column += 1

    def _obey(self, private: str, given: str, verb: str) -> None:
        number = int(given.split(";")[0] or 0) if given else 0
        if private:
            if number == 25:
                self.cursor_is_hidden = verb == "l"
            elif number == 1049:
                self._switch(verb == "h")
        elif verb == "A":
            self.row = max(self.row - (number or 1), 0)
        elif verb == "K":
            del self.lines[self.row][0 if number == 2 else self.column :]
        elif verb == "H":
            self.row = self.column = 0
        elif verb == "J" and number == 2:
            self.lines = [[]]
            self.row = self.column = 0
        elif verb == "J":
            del self.lines[self.row][self.column :]
            del self.lines[self.row + 1 :]
        elif verb != "m":
            raise AssertionError(f"the screen does not know ESC[{private}{given}{verb}")

    def _switch(self, to_other: bool) -> None:
        self.is_other = to_other
        if to_other:
            self._first = self.lines, self.row, self.column
            self.lines, self.row, self.column = [[]], 0, 0
        elif self._first is not None:
            self.left = self.shown()
            self.lines, self.row, self.column = self._first


class Terminal:
    """A terminal with a process in it, which is the one that Ctrl-C is for."""

    def __init__(self, work: Callable[..., Any], *given: Any, columns: int, rows: int = 24) -> None:
        self.screen = Screen(columns, rows)
        self.written = ""
        self.is_usable = False
        """After the end: the cursor is seen, typing is shown as before, and the first screen is back."""
        # What is read at once may end in the middle of a character.
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._main, side = pty.openpty()
        fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self._before = termios.tcgetattr(side)
        self._process = _processes.Process(target=_in_terminal, args=(os.ttyname(side), work, given))
        self._process.start()
        self._side = side

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._process.is_alive():
            self._process.kill()
        self._process.join(60)
        self._process.close()
        os.close(self._side)
        os.close(self._main)

    def wait_for(self, is_so: Callable[[Screen], bool], within: float = 180) -> None:
        """Draw what comes until the screen is so."""
        deadline = time.monotonic() + within
        while not is_so(self.screen):
            if not self._draw(0.05) and (time.monotonic() > deadline or not self._process.is_alive()):
                while self._draw(0):
                    pass
                assert is_so(self.screen), "\n".join(self.screen.shown())

    def press(self, keys: bytes) -> None:
        """Type something."""
        os.write(self._main, keys)

    def resize(self, columns: int, rows: int) -> None:
        """Make the window larger or smaller."""
        self.screen.resize(columns, rows)
        fcntl.ioctl(self._side, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def end(self, within: float = 180) -> int:
        """Draw until the process has ended; return its exit code."""
        deadline = time.monotonic() + within
        while self._process.is_alive() and time.monotonic() < deadline:
            self._draw(0.02)
        while self._draw(0):
            pass
        self._process.join(60)
        code = self._process.exitcode
        assert code is not None, "it has not ended:\n" + "\n".join(self.screen.shown())
        is_same = termios.tcgetattr(self._side) == self._before
        self.is_usable = is_same and not self.screen.cursor_is_hidden and not self.screen.is_other
        return code

    def _draw(self, within: float) -> bool:
        if not select.select([self._main], [], [], within)[0]:
            return False
        text = self._decoder.decode(os.read(self._main, 65_536))
        self.written += text
        self.screen.feed(text)
        return True


def _in_terminal(name: str, work: Callable[..., Any], given: tuple[Any, ...]) -> None:
    """Make the terminal the process's own, as a shell's child has it, and work."""
    os.setsid()
    side = os.open(name, os.O_RDWR)
    for number in range(3):
        os.dup2(side, number)
    # Also where the tests themselves run in the background or under nohup, which ignore some signals.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    os.environ.update(TERM="xterm-256color")
    for variable in ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR"):
        os.environ.pop(variable, None)
    sys.stdin = io.TextIOWrapper(os.fdopen(0, "rb", closefd=False))
    sys.stdout, sys.stderr = (
        io.TextIOWrapper(os.fdopen(number, "wb", closefd=False), "utf-8", line_buffering=True) for number in (1, 2)
    )
    sys.exit(work(*given))


def command(*words: str) -> int:
    """What `overnight` does with these words, in the process that it is called in."""
    from overnight.cli import output
    from overnight.cli.app import run

    for console in (output.people, output.aside):
        # Once more, as they were made where there was no terminal.
        console.__init__(stderr=console.stderr, highlight=False, emoji=False)  # type: ignore[misc]
    return run(list(words))


@contextmanager
def overnight(*words: object, columns: int = 80, rows: int = 24) -> Iterator[Terminal]:
    """A terminal with a command in it."""
    with Terminal(command, *map(str, words), columns=columns, rows=rows) as terminal:
        yield terminal
