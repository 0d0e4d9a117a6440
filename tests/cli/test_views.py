"""What commands draw, in terminals of any width, also real ones; and what they print for programs."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import pytest
from rich.console import Console
from rich.live import Live

from overnight.cli import output
from overnight.cli.app import run
from overnight.cli.overview import Overview
from overnight.cli.progress import Bars, Counts, bars, displayed, stage_of
from overnight.cli.show import describe
from overnight.client import BatchFailed, Client, ConnectionFailed, ServerFault
from tests.cli.conftest import Shell, write
from tests.process import Served, chat
from tests.terminal import Screen, Terminal, command, overnight
from tests.witness import Witness

WIDTHS = (20, 50, 80, 120)
ID = "batch_01a2290b513473d68b46b50c3b28e636"


def drawn(what: Any, width: int, height: int = 24) -> list[str]:
    """The lines of a terminal, without their colours."""
    console = Console(file=io.StringIO(), width=width, height=height, force_terminal=True, legacy_windows=False)
    console.print(what)
    assert isinstance(console.file, io.StringIO)
    return [re.sub(r"\x1b\[[0-9;?]*\w", "", line).rstrip() for line in console.file.getvalue().splitlines()]


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("stage", ["running", "paused (low_disk)", "running (12/100 files)", "waiting: " + "for " * 30])
def test_progress_is_one_line_with_the_counts_if_they_fit(width: int, stage: str) -> None:
    line = Bars()
    line.show(Counts(1_000_000, 123_456, 789, 0), stage)

    (text,) = drawn(line, width)

    assert len(text) <= width
    if width >= 50:
        assert "124,245/1,000,000" in text
    if width >= 80 and len(stage) < 80:
        assert "789 failed" in text
        assert "━" in text


def test_an_error_does_not_follow_the_progress_on_its_line(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ConnectionFailed), bars():
        raise ConnectionFailed("gone")

    assert capfd.readouterr().err == "  starting\n"


@pytest.mark.parametrize("screen", [True, False])
def test_ctrl_c_while_something_is_first_drawn_leaves_the_terminal_as_it_was(screen: bool) -> None:
    class Interrupted:
        def __rich_console__(self, *_: object) -> Iterator[str]:
            yield "half"
            raise KeyboardInterrupt

    console = Console(file=io.StringIO(), force_terminal=True, legacy_windows=False)

    with pytest.raises(KeyboardInterrupt), displayed(Live(Interrupted(), console=console, screen=screen)):
        raise AssertionError("it was interrupted before")

    assert isinstance(console.file, io.StringIO)
    written = console.file.getvalue()
    assert written.rindex("\x1b[?25h") > written.rindex("\x1b[?25l")
    assert written.count("\x1b[?1049l") == written.count("\x1b[?1049h") == screen


def batch(status: str, **more: Any) -> dict[str, Any]:
    counts = {"total": 12_000, "completed": 3_400, "failed": 56}
    return {"id": ID, "status": status, "request_counts": counts, "progress": None, "paused": None, **more}


def seen(batches: list[dict[str, Any]]) -> dict[str, Any]:
    pool = {"intake_pool_size": 10, "intake_pool_capacity": 1_000_000, "oldest_waiting_seconds": 61.2}
    return {
        "server": "http://127.0.0.1:10900",
        "at": 1_700_000_000,
        "error": None,
        "health": {"status": "unhealthy", "reason": "loading"},
        "pool": {**pool, "scheduling_pool_active": 4, "scheduling_pool_capacity": 64},
        "models": [
            {"id": "small", "context_length": 8192, "waiting_for": None},
            {"id": "large", "context_length": None, "waiting_for": "server_down"},
            *({"id": f"m-{n}", "waiting_for": None} for n in range(10)),
        ],
        "batches": batches,
    }


@pytest.mark.parametrize("width", WIDTHS[1:])
def test_the_overview_fits_its_terminal(width: int) -> None:
    running = batch("in_progress", model="small", progress={"estimated_finish_at": 1_700_000_090, "running": 2})

    lines = drawn(Overview(seen([running] * 40)), width, height=20)

    text = "\n".join(lines)
    assert len(lines) <= 20
    assert all(len(line) <= width for line in lines)
    for told in (
        "loading",
        "10 of 1,000,000 waiting",
        "4 of 64 running",
        "small  ready, 4 running, 8,192",
        "3,400/12,000",
    ):
        assert told in text
    assert ("1 min 30 s" in text, "more: overnight list" in text) == (True, True)
    assert "large  the local engine is down" in text
    assert ("m-5" in text, "m-6" in text, "4 more: overnight models" in text) == (True, False, True)
    assert (ID in text) == (width >= 80)


def test_the_overview_keeps_what_it_saw_while_the_server_is_away() -> None:
    view = Overview(seen([batch("in_progress")]))

    view.seen = {"server": "x", "at": 1, "error": "it is away"}

    text = "\n".join(drawn(view, 80))
    assert ("it is away" in text, "3,400/12,000" in text) == (True, True)


@pytest.mark.parametrize("width", WIDTHS)
def test_a_row_that_is_too_long_has_its_id_on_a_line_of_its_own(width: int) -> None:
    to = Console(file=io.StringIO(), width=width, force_terminal=True)

    output.table(("BATCH", "STATUS", "MODEL"), [(ID, "completed", "a-model")], whole=2, stacked=True, to=to)

    assert isinstance(to.file, io.StringIO)
    lines = re.sub(r"\x1b\[[0-9;]*m", "", to.file.getvalue()).splitlines()
    assert sum(ID in line for line in lines) == 1
    assert (ID in [line.strip() for line in lines]) == (width < 58)


@pytest.mark.parametrize("width", [*WIDTHS, 70])
def test_columns_that_may_be_are_shortened_to_the_terminal_and_no_cell_is_broken(width: int) -> None:
    to = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    rows = [("a-model", "8,192", "chat, completions, embeddings", "a-model-q8_0.gguf, Some/A-Model-With-A-Long-Name")]

    output.table(("MODEL", "CONTEXT", "ENDPOINTS", "ALIASES"), rows, stacked=True, shorten=(2,), to=to)

    assert isinstance(to.file, io.StringIO)
    lines = [line.rstrip() for line in to.file.getvalue().splitlines()]
    aliases = ["a-model-q8_0.gguf,", "Some/A-Model-With-A-Long-Name"]
    if width >= 80:
        assert len(lines) == 2
        assert all(len(line) <= width for line in lines)
        assert ("…" in lines[1]) == (width < 120)
        assert lines[1].endswith(" ".join(aliases))
    elif width >= 50:
        assert lines == ["a-model", "  8,192  chat, completions, embeddings", f"  {' '.join(aliases)}"]
    else:
        assert lines == ["a-model", "  8,192", "  chat, completions,", "  embeddings", *(f"  {a}" for a in aliases)]


@pytest.mark.parametrize("text", ["res[final].jsonl", "[/] [red]x", ":smile: a\\[b]\\"])
def test_what_is_said_is_said_as_it_is(text: str, capfd: pytest.CaptureFixture[str]) -> None:
    output.say(text)
    output.answer(text)
    output.table(("A", "B"), [(text, text)])
    output.facts([("fact", text)])
    output.entry("name", text, text)

    out, err = capfd.readouterr()
    assert err == f"{text}\n"
    assert out.count(text) == 6


def test_sentences_are_broken_between_words_and_commands_not_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    to = Console(file=io.StringIO(), width=50, force_terminal=True, color_system=None)
    monkeypatch.setattr(output, "aside", to)

    output.say(f"12 requests. Follow the batch with: overnight watch {ID}")
    output.complain("one two three four five six seven eight nine ten eleven")

    assert isinstance(to.file, io.StringIO)
    assert to.file.getvalue().splitlines() == [
        "12 requests. Follow the batch with:",
        f"overnight watch {ID}",
        "error: one two three four five six seven eight",
        "nine ten eleven",
    ]


def test_facts_never_break_an_id(monkeypatch: pytest.MonkeyPatch) -> None:
    to = Console(file=io.StringIO(), width=35, force_terminal=True, color_system=None)

    output.facts([("batch", ID), ("error", "one two three four five six seven eight nine")], to=to)

    assert isinstance(to.file, io.StringIO)
    lines = to.file.getvalue().splitlines()
    assert lines[0] == f"batch  {ID}"
    assert len(lines) == 3
    assert lines[2].startswith("       ")


def test_an_id_that_is_whole_only_on_a_line_of_its_own_has_that() -> None:
    to = Console(file=io.StringIO(), width=50, force_terminal=True, color_system=None)

    output.facts([("batch", ID), ("may start until", "tomorrow")], to=to)

    assert isinstance(to.file, io.StringIO)
    assert to.file.getvalue().splitlines() == ["batch", f"  {ID}", "may start until  tomorrow"]


@pytest.mark.parametrize("status", ["completed", "failed", "expired", "cancelled"])
def test_a_batch_that_has_ended_says_when_and_how_long_it_took(status: str, capfd: pytest.CaptureFixture[str]) -> None:
    facts = ("model", "endpoint", "input_file_id", "output_file_id", "error_file_id", "expires_at")
    at = 1_700_000_000

    describe(
        {
            **dict.fromkeys(facts),
            **batch(status, created_at=at, results_expires_at=at + 90, **{f"{status}_at": at + 75}),
        }
    )

    shown = dict(line.split(maxsplit=1) for line in capfd.readouterr().out.splitlines())
    assert shown["ended"] == f"{output.moment(at + 75)}, after 1 min 15 s"
    assert shown["kept"] == f"until   {output.moment(at + 90)}"
    assert "may" not in shown


def finished(shell: Shell, folder: Path, *lines: dict[str, Any]) -> str:
    _, out, _ = shell("submit", write(folder, lines))
    shell.service.wait(out.strip())
    return out.strip()


def test_watch_shows_everything_or_one_batch_to_people_and_to_programs(shell: Shell, tmp_path: Path) -> None:
    one = finished(shell, tmp_path, chat("a", "watched"))

    code, out, _ = shell("watch", "--once")
    assert (code, one in out, "healthy" in out, "test-model" in out) == (0, True, True, True)
    code, out, _ = shell("watch", "--once", "--json")
    found = json.loads(out)
    assert (code, found["health"], found["batches"][0]["id"]) == (0, {"status": "healthy"}, one)
    code, out, _ = shell("watch", one, "--json")
    assert (code, json.loads(out)["status"]) == (0, "completed")


def test_watch_tells_programs_that_the_server_is_away_and_ends_so(capfd: pytest.CaptureFixture[str]) -> None:
    code = run(["watch", "--once", "--json", "--server", "http://127.0.0.1:9"])

    out, err = capfd.readouterr()
    assert code == 3
    assert "127.0.0.1:9" in json.loads(out)["error"]
    assert "overnight serve" in err


class Away:
    """A client whose server is away for a few looks."""

    def __init__(self, *looks: dict[str, Any] | Exception) -> None:
        self.looks = list(looks)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def get_batch(self, _: str) -> dict[str, Any]:
        look = self.looks.pop(0)
        if isinstance(look, Exception):
            raise look
        return look


@pytest.mark.parametrize("away", [ConnectionFailed("gone"), ServerFault(503, "unhealthy", "It starts.")])
def test_watching_a_batch_outlives_a_server_that_is_started_anew(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], away: Exception
) -> None:
    ended = batch("failed", status_details=None)
    client = Away(batch("in_progress"), away, away, ended)
    monkeypatch.setattr("overnight.cli.watch.client", lambda *_, **__: client)
    monkeypatch.setattr("overnight.cli.watch.time.sleep", lambda _: None)

    code = run(["watch", ID, "--json"])

    assert (code, client.looks) == (1, [])
    assert [json.loads(line)["status"] for line in capfd.readouterr().out.splitlines()] == ["in_progress", "failed"]


def test_a_batch_that_cannot_start_says_why(capfd: pytest.CaptureFixture[str]) -> None:
    progress = {"waiting": 3, "running": 0, "estimated_finish_at": None, "waiting_for": "server_loading"}
    held = batch("in_progress", progress=progress)
    facts = ("model", "endpoint", "input_file_id", "output_file_id", "error_file_id", "created_at", "expires_at")

    describe({**dict.fromkeys(facts), **held})

    assert stage_of(held) == "waiting: the model is loading"
    assert stage_of(held, in_brief=True) == "waiting: server loading"
    assert "the model is loading" in capfd.readouterr().out


def test_files_are_listed_shown_downloaded_and_deleted(shell: Shell, tmp_path: Path) -> None:
    one = finished(shell, tmp_path, chat("a", "stored"))
    file = shell.service.get(f"/v1/batches/{one}")["input_file_id"]

    _, listed, _ = shell("files", "list", "--purpose", "batch")
    _, shown, _ = shell("files", "show", file)
    _, as_json, _ = shell("files", "show", file, "--json")
    _, printed, _ = shell("files", "download", file)
    code, _, said = shell("files", "download", file, "-o", tmp_path / "copy[1].jsonl")

    assert (file in listed, "in.jsonl" in shown, json.loads(as_json)["lines"]) == (True, True, 1)
    assert (code, "bytes written" in said, "copy[1].jsonl" in said) == (0, True, True)
    assert printed.encode() == (tmp_path / "copy[1].jsonl").read_bytes() == (tmp_path / "in.jsonl").read_bytes()
    code, out, said = shell("files", "download", file, "-o", tmp_path / "copy", "--json")
    size = (tmp_path / "copy").stat().st_size
    assert (code, said) == (0, "")
    assert json.loads(out) == {"file": file, "output": str(tmp_path / "copy"), "bytes": size}
    assert shell("files", "download", file, "--json")[0] == 2
    assert shell("files", "delete", file)[0] == 0
    assert shell("files", "show", file)[0] == 3


def test_a_file_with_problems_says_so_when_it_is_shown(shell: Shell, tmp_path: Path) -> None:
    one = shell.service.submit([chat("a", "x"), chat("a", "y")])
    file = shell.service.get(f"/v1/batches/{one}")["input_file_id"]

    _, out, said = shell("files", "show", file)

    assert ("1 problem;" in said, "duplicate_custom_id" in out) == (True, True)


def test_models_and_lists_are_narrowed_and_printed_for_both(shell: Shell, tmp_path: Path) -> None:
    one = finished(shell, tmp_path, chat("a", "listed"))

    _, out, _ = shell("models")
    assert ("test-model" in out, "other-model" in out) == (True, True)
    assert "test-model" in [model["id"] for model in json.loads(shell("models", "--json")[1])]
    assert one in shell("list", "--status", "completed", "--find", one[:20])[1]
    assert "none of these" in shell("list", "--status", "expired")[2]


def test_results_come_in_the_order_of_the_requests_where_asked(shell: Shell, tmp_path: Path) -> None:
    one = finished(shell, tmp_path, *(chat(f"r-{i}", f"{'[status 400] ' * (i % 2)}res {i}") for i in range(6)))

    _, ordered, _ = shell("results", one, "--ordered")
    _, good, _ = shell("results", one, "--ordered", "--no-errors")

    assert [json.loads(line)["custom_id"] for line in ordered.splitlines()] == [f"r-{i}" for i in range(6)]
    assert [json.loads(line)["custom_id"] for line in good.splitlines()] == ["r-0", "r-2", "r-4"]


COLUMNS = pytest.mark.parametrize("columns", [80, 50])


def has(screen: Screen, text: str) -> bool:
    return any(text in line for line in screen.shown())


def run_looking_often(*words: str) -> int:
    """The command in a process of its own, with less time between its looks."""
    from overnight.cli import follow

    follow.LOOK_EVERY = 0.05
    return command(*words)


def running(service: Served, folder: Path, texts: list[str], columns: int = 80) -> Terminal:
    file = write(folder, [chat(f"t-{i}", text) for i, text in enumerate(texts)])
    words = ["run", file, "-o", folder / "out", "--server", service.url, "--data-dir", folder / "data"]
    return Terminal(run_looking_often, *map(str, words), columns=columns)


@COLUMNS
def test_a_run_is_one_line_that_is_drawn_over_and_a_sentence(
    service: Served, witness: Witness, tmp_path: Path, columns: int
) -> None:
    with running(service, tmp_path, [f"[held line-{columns}] in a terminal"] * 3, columns) as terminal:
        terminal.wait_for(lambda screen: has(screen, "0/3"))
        assert terminal.screen.cursor_is_hidden
        witness.let(f"line-{columns}")
        code = terminal.end()

    screen = terminal.screen
    assert code == 0, screen.shown()
    assert screen.drawn_over > 1
    # A path that is longer than a line can be copied whole; what is drawn over keeps to its line.
    bar, *said = screen.shown()
    assert said[0] == "3 of 3 answered. The results are in"
    assert "".join(said[1:]) == str(tmp_path / "out")
    assert screen.wrapped == said[1:-1]
    assert bar.split()[0] == "completed"
    assert "━" in bar
    assert "3/3" in bar
    assert terminal.is_usable


def test_ctrl_c_stops_a_run_and_leaves_the_terminal_as_it_was(
    service: Served, witness: Witness, tmp_path: Path
) -> None:
    with running(service, tmp_path, ["[held ctrl-c] interrupted in a terminal"]) as terminal:
        terminal.wait_for(lambda screen: has(screen, "0/1"))
        terminal.press(b"\x03")
        code = terminal.end()
    witness.let("ctrl-c")

    assert code == 130
    assert terminal.is_usable
    assert terminal.screen.shown()[-1].startswith("Stopped. What was answered is kept")
    assert "Traceback" not in terminal.written


@COLUMNS
def test_a_batch_is_watched_in_one_line_and_then_described(service: Served, witness: Witness, columns: int) -> None:
    batch = service.submit([chat("good", f"[held watch-{columns}] x"), chat("bad", "[status 400] watched")])

    with overnight("watch", batch, "--server", service.url, "--every", "0.2", columns=columns) as terminal:
        terminal.wait_for(lambda screen: has(screen, "1/2"))
        witness.let(f"watch-{columns}")
        code = terminal.end()

    screen = terminal.screen
    assert code == 1
    assert screen.drawn_over
    bar, *described = screen.shown()
    assert (bar.split()[0], "2/2" in bar, "1 failed" in bar) == ("completed", True, True)
    assert re.match(rf"batch +{batch}status", "".join(described))
    # Only ids are longer than a line, which can be copied whole.
    assert all("batch" in line or "file" in line or "overnight results" in line for line in screen.wrapped)
    assert terminal.is_usable


@COLUMNS
def test_the_overview_fills_a_screen_of_its_own_until_ctrl_c(service: Served, columns: int) -> None:
    with overnight("watch", "--server", service.url, "--every", "0.2", columns=columns, rows=12) as terminal:
        terminal.wait_for(lambda screen: has(screen, "test-model"))
        assert (terminal.screen.is_other, terminal.screen.wrapped) == (True, [])
        shown = terminal.screen.shown()
        terminal.press(b"\x03")
        code = terminal.end()

    assert code == 130
    assert len(shown) <= 12
    assert terminal.is_usable
    assert terminal.screen.shown() in ([], ["^C"])


def test_nothing_of_the_line_remains_where_the_terminal_becomes_narrower() -> None:
    file, screen = io.StringIO(), Screen(80, 24)
    console = Console(file=file, width=80, height=24, force_terminal=True, legacy_windows=False)
    line = Bars()
    line.show(Counts(100, 40, 0, 0), "running")
    live = Live(line, console=console, auto_refresh=False)

    def shown() -> list[str]:
        screen.feed(file.getvalue().replace("\n", "\r\n"))
        file.seek(0)
        file.truncate()
        return screen.shown()

    console.print("what was there before")
    with displayed(live):
        for columns in (50, 24, 100, 30):
            assert len(shown()) == 2
            screen.resize(columns, 24)
            console.width = columns
            live.refresh()
            before, now = shown()
            assert (before, "40/100" in now) == ("what was there before", True)
            assert len(now) <= columns
    assert len(shown()) == 2
    assert (screen.row, screen.column) == (2, 0)


def test_the_overview_is_drawn_anew_where_the_terminal_is_resized_and_leaves_nothing(service: Served) -> None:
    batch = service.submit([chat("a", "seen in a terminal that is resized")])
    service.wait(batch)

    with overnight("watch", "--server", service.url, "--every", "600", columns=80) as terminal:
        terminal.wait_for(lambda screen: has(screen, batch))
        terminal.resize(50, 12)
        terminal.wait_for(lambda screen: has(screen, f"…{batch[-8:]}"))
        terminal.resize(100, 40)
        terminal.wait_for(lambda screen: has(screen, batch))
        terminal.press(b"\x03")
        code = terminal.end()

    assert code == 130
    assert terminal.screen.left == []
    assert terminal.is_usable


def wait_with_a_bar(url: str, batch: str) -> int:
    with Client(url) as client:
        try:
            client.wait_for_batch(batch, 0.1, progress=True)
        except BatchFailed:
            return 1
    return 0


@pytest.mark.parametrize("columns", [80, 24])
def test_the_bar_of_the_client_is_drawn_over_and_ends_its_line(service: Served, witness: Witness, columns: int) -> None:
    batch = service.submit([chat(f"p-{i}", f"[held bar-{columns}-{i}] x") for i in range(3)])

    with Terminal(wait_with_a_bar, service.url, batch, columns=columns) as terminal:
        for i in range(3):
            terminal.wait_for(lambda screen, i=i: has(screen, f"{i}/3"))  # type: ignore[misc]
            witness.let(f"bar-{columns}-{i}")
        code = terminal.end()

    screen = terminal.screen
    assert code == 0
    assert "".join(screen.shown()[:-1]) == batch
    assert screen.shown()[-1].split()[0] == "completed"
    assert screen.shown()[-1].split()[-1] == "3/3"
    assert len(screen.shown()[-1]) < columns
    assert screen.drawn_over > 1
    assert (screen.column, terminal.is_usable) == (0, True)
