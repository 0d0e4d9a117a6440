"""How `overnight serve` hears the signals to stop."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from overnight.cli.serve import Stop


async def test_the_second_signal_ends_what_the_first_lets_finish() -> None:
    hurried: list[bool] = []
    stop = Stop()
    stop.server = cast("Any", SimpleNamespace(hurry=lambda: hurried.append(True)))

    stop.hear()
    assert (stop.asked.is_set(), hurried) == (True, [])
    stop.hear()
    assert hurried == [True]


async def test_the_second_signal_breaks_off_a_start_that_takes_long() -> None:
    starting = asyncio.Event()

    async def start() -> None:
        stop = Stop()
        stop.hear()
        starting.set()
        asyncio.get_running_loop().call_soon(stop.hear)
        await asyncio.Event().wait()

    task = asyncio.create_task(start())
    await starting.wait()
    with pytest.raises(asyncio.CancelledError):
        await task
