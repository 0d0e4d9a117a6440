"""What is said of a server or a database that does not answer."""

from __future__ import annotations

import asyncio
import io
import socket
from collections.abc import Iterator

import pytest
from rich.console import Console

from overnight.cli import output
from overnight.cli.app import run
from overnight.cli.connect import THE_SERVER
from overnight.cli.overview import Overview
from overnight.cli.silence import THE_DATABASE, Silence
from tests.cli.test_views import batch, drawn, seen


@pytest.fixture
def frozen() -> Iterator[str]:
    """The address of a server that takes connections and never says anything."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


@pytest.mark.parametrize("words", [["list"], ["show", "batch_1"], ["models"], ["cancel", "batch_1"], ["files", "list"]])
def test_a_command_gives_a_silent_server_up_and_does_not_ask_whether_there_is_one(
    words: list[str], frozen: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("overnight.cli.connect.ANSWERED_WITHIN", 0.1)
    code = run([*words, "--server", frozen])

    out, err = capfd.readouterr()
    assert (code, out) == (3, "")
    assert "no answer has come within 0.1 s." in err
    assert "It is there and says nothing" in err
    assert "Is a server running" not in err


def test_silence_is_said_now_and_then_and_anew_after_an_answer(capfd: pytest.CaptureFixture[str]) -> None:
    silence = Silence(THE_SERVER, most=60)

    for seconds in (1, 4.9, 5.1, 6, 14, 15.3, 16, 1, 5):
        silence(seconds)

    assert capfd.readouterr().err.splitlines() == [
        f"Waiting, up to 1 min 00 s: the server has not answered for {after} s." for after in (5, 15, 5)
    ]


@pytest.mark.parametrize("is_terminal", [True, False])
def test_where_something_is_drawn_silence_is_shown_there(
    is_terminal: bool, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(output, "aside", Console(file=io.StringIO(), force_terminal=is_terminal))
    silence, shown = Silence(THE_SERVER), list[str]()

    with silence.shown_by(shown.append):
        for seconds in (2, 3, 4, 5):
            silence(seconds)
    silence(6)

    assert isinstance(output.aside.file, io.StringIO)
    said = output.aside.file.getvalue()
    if is_terminal:
        assert shown == [f"the server has not answered for {seconds} s" for seconds in (3, 4, 5)]
        assert "has not answered for 6 s" in said
    else:
        assert shown == []
        assert said == "Waiting: the server has not answered for 5 s.\n"


async def test_what_is_waited_for_without_a_call_is_counted_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("overnight.cli.silence.EVERY", 0.001)
    monkeypatch.setattr("overnight.cli.silence.SHOWN_AFTER", 0)
    monkeypatch.setattr(output, "aside", Console(file=io.StringIO(), force_terminal=True))
    shown = asyncio.Event()
    silence = Silence(THE_DATABASE)

    with silence.shown_by(lambda says: shown.set()):
        async with silence.counted():
            await asyncio.wait_for(shown.wait(), 60)


def test_the_overview_shows_what_it_waits_for_above_what_it_saw_last() -> None:
    view = Overview(seen([batch("in_progress")]))

    view.missing = "the server has not answered for 7 s"
    lines = drawn(view, 80)
    view.seen = seen([])

    assert lines[0] == "the server has not answered for 7 s"
    assert "as it was" in lines[1]
    assert "not answered" not in "".join(drawn(view, 80))
