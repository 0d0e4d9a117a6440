"""The log of an engine keeps its end and stays small."""

from __future__ import annotations

import asyncio
from pathlib import Path

from overnight.engine.log import LAST_LINES, LONGEST_LINE, EngineLog


def source(content: bytes) -> asyncio.StreamReader:
    reader = asyncio.StreamReader()
    reader.feed_data(content)
    reader.feed_eof()
    return reader


async def test_the_last_lines_are_kept() -> None:
    log = EngineLog(None)

    await log.follow(
        source(b"".join(b"line %d\n" % number for number in range(2 * LAST_LINES)) + b"the end"), lambda line: True
    )

    assert len(log.last) == LAST_LINES
    assert list(log.last)[-2:] == [f"line {2 * LAST_LINES - 1}", "the end"]


async def test_the_lines_of_an_older_life_are_not_taken_for_those_of_the_present() -> None:
    log = EngineLog(None)
    await log.follow(source(b"an older life\n"), lambda line: True)

    await log.follow(source(b"the present\n"), lambda line: True)

    assert list(log.last) == ["the present"]


async def test_the_file_is_turned_over_at_its_limit(tmp_path: Path) -> None:
    path = tmp_path / "engine.log"
    log = EngineLog(path, largest=1_000)

    await log.follow(source(b"".join(b"%099d\n" % number for number in range(95))), lambda line: True)

    kept = sorted(file.name for file in tmp_path.iterdir())
    assert kept == ["engine.log", "engine.log.1"]
    assert all(file.stat().st_size <= 1_100 for file in tmp_path.iterdir())
    assert path.read_text().endswith("94\n")


async def test_a_line_without_end_is_cut(tmp_path: Path) -> None:
    log = EngineLog(tmp_path / "engine.log")

    await log.follow(source(b"\xff" * (3 * LONGEST_LINE) + b"\nnext\n"), lambda line: True)

    assert max(len(line) for line in log.last) <= LONGEST_LINE
    assert log.last[-1] == "next"


async def test_lines_that_may_not_be_kept_are_kept_nowhere(tmp_path: Path) -> None:
    log = EngineLog(tmp_path / "engine.log")

    await log.follow(source(b"good\nbad\n\ngood too\n"), lambda line: line != "bad")

    assert list(log.last) == ["good", "good too"]
    assert (tmp_path / "engine.log").read_text() == "good\ngood too\n"
