"""Facts are told, and telling them never gets in the way."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator

import pytest
import structlog
from prometheus_client import REGISTRY

from overnight.domain import events


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    before = structlog.get_config()
    yield
    structlog.configure(**before)


def told(event: str) -> float:
    return REGISTRY.get_sample_value("overnight_events_total", {"event": event}) or 0.0


def test_a_fact_is_counted_and_written_as_one_json_object(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    events.set_up_logging("info", as_json=True)
    monkeypatch.setattr(sys, "stderr", written := io.StringIO())
    before = told("file_stored")

    events.tell("file_stored", file="file-1", bytes=7)

    line = json.loads(written.getvalue())
    assert (line["event_name"], line["file"], line["bytes"]) == ("file_stored", "file-1", 7)
    assert told("file_stored") == before + 1


def test_a_reader_of_the_log_that_went_away_takes_nothing_else_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    class Gone(io.StringIO):
        def write(self, _: str) -> int:
            raise BrokenPipeError

    events.set_up_logging("info")
    monkeypatch.setattr(sys, "stderr", Gone())
    events.tell("file_stored")
    closed = io.StringIO()
    closed.close()
    monkeypatch.setattr(sys, "stderr", closed)
    before = told("file_stored")

    events.tell("file_stored")

    assert told("file_stored") == before + 1


def test_an_error_is_told_without_the_values_of_local_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(prompt: str) -> None:
        raise ValueError(len(prompt))

    for as_json in (False, True):
        events.set_up_logging("info", as_json=as_json)
        monkeypatch.setattr(sys, "stderr", written := io.StringIO())
        try:
            fail("".join(["what the ", "user asked"]))
        except ValueError as e:
            events.tell("round_failed", e, round="test")

        said = written.getvalue()
        assert "ValueError" in said
        assert "what the user asked" not in said


def test_every_fact_is_counted_from_zero_on_so_that_an_alert_sees_its_first_time() -> None:
    counted = {
        sample.labels["event"]
        for family in REGISTRY.collect()
        for sample in family.samples
        if sample.name == "overnight_events_total"
    }
    assert counted == set(events.FACTS)
