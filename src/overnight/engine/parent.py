"""What the process of an engine owes the one that started it: to end with it, and to say little and clearly."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

PR_SET_PDEATHSIG = 1


def tell_when_parent_ends(parent: int, end: Callable[[], None]) -> None:
    """Call `end` however the parent ends: by the kernel's signal where there is one, by the end of our input elsewhere.

    To the kernel the parent is the thread that started us, which is the one of the parent's event loop.
    """
    if sys.platform == "linux":
        signal.signal(signal.SIGUSR1, lambda *_: end())
        _order(signal.SIGUSR1)
    # The parent may have died before the signal was ordered.
    if os.getppid() != parent:
        end()
    threading.Thread(target=_wait_for_end_of_input, args=(end,), daemon=True).start()


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent ends, also where no thread of Python runs any more."""
    if sys.platform == "linux":
        _order(signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def exit_when_input_ends() -> None:
    """Where there is no signal at a parent's death, the closed pipe tells of it."""
    threading.Thread(target=_wait_for_end_of_input, args=(lambda: os._exit(1),), daemon=True).start()


def private_output() -> int:
    """Our standard output under another number; what libraries print goes to standard error instead."""
    private = os.dup(1)
    os.dup2(2, 1)
    return private


def tell(output: int, fact: dict[str, Any]) -> None:
    """Write one line of JSON."""
    os.write(output, json.dumps(fact).encode() + b"\n")


def _order(number: signal.Signals) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, number)


def _wait_for_end_of_input(end: Callable[[], None]) -> None:
    # Not through sys.stdin: a thread inside its buffer breaks the interpreter's own exit.
    while os.read(0, 4096):
        pass
    end()
