"""When a failing server is left alone, and when it is tried again."""

from __future__ import annotations

import pytest

from overnight.catalog.circuit import FAILURES, FIRST_PAUSE, LONGEST_PAUSE, Circuit


def opened(at: float = 0.0) -> Circuit:
    circuit = Circuit()
    for _ in range(FAILURES):
        circuit.note_failure(at, at)
    return circuit


def test_a_few_failures_change_nothing() -> None:
    circuit = Circuit()
    for _ in range(FAILURES - 1):
        circuit.note_failure(0.0, 0.0)
    assert circuit.most_running(10, 0.0) == 10


def test_an_answer_between_failures_begins_the_count_anew() -> None:
    circuit = Circuit()
    for _ in range(FAILURES * 3):
        circuit.note_failure(0.0, 0.0)
        circuit.note_answer()
    assert not circuit.is_open


def test_failures_in_a_row_open_it() -> None:
    circuit = opened()
    assert circuit.is_open
    assert circuit.most_running(10, FIRST_PAUSE - 0.1) == 0


def test_one_probe_may_run_after_the_pause() -> None:
    assert opened().most_running(10, FIRST_PAUSE) == 1


def test_an_answer_closes_it() -> None:
    circuit = opened()
    circuit.note_answer()
    assert circuit.most_running(10, 0.0) == 10
    for _ in range(FAILURES):
        circuit.note_failure(100.0, 100.0)
    assert circuit.most_running(10, 100.0 + FIRST_PAUSE) == 1


def test_a_probe_that_fails_doubles_the_pause_up_to_its_longest() -> None:
    circuit, now, pause = opened(), FIRST_PAUSE, FIRST_PAUSE
    for _ in range(10):
        circuit.note_failure(now, now)
        pause = min(pause * 2, LONGEST_PAUSE)
        assert circuit.most_running(10, now + pause - 0.1) == 0
        now += pause
        assert circuit.most_running(10, now) == 1
    assert pause == LONGEST_PAUSE


@pytest.mark.parametrize("ends", [FIRST_PAUSE / 2, FIRST_PAUSE, FIRST_PAUSE + 1.0])
def test_failures_of_requests_from_before_do_not_prolong_the_pause(ends: float) -> None:
    circuit = opened(1.0)
    circuit.note_failure(1.0 + ends, 0.5)
    assert circuit.most_running(10, 1.0 + FIRST_PAUSE) == 1


def test_failures_of_requests_from_before_do_not_open_it_again() -> None:
    circuit = opened(1.0)
    circuit.note_answer()
    for _ in range(FAILURES):
        circuit.note_failure(60.0, 0.5)
    assert not circuit.is_open
    for _ in range(FAILURES):
        circuit.note_failure(60.0, 40.0)
    assert circuit.is_open


def answering(at: float = 0.0) -> Circuit:
    """Opened by a server that answers."""
    circuit = Circuit()
    for _ in range(FAILURES):
        circuit.note_failure(at, at, answered=True)
    return circuit


def test_a_server_that_answers_may_be_probed_before_the_pause_is_over() -> None:
    circuit = answering()
    assert circuit.most_running(10, 1.0) == 0
    circuit.probe_early(1.0)
    assert circuit.most_running(10, 1.0) == 1
    circuit.note_answer()
    assert circuit.most_running(10, 1.0) == 10


def test_an_early_probe_that_fails_leaves_the_pause_as_it_was() -> None:
    circuit = answering()
    circuit.probe_early(1.0)
    circuit.note_failure(2.0, 1.0, answered=True)
    assert circuit.most_running(10, FIRST_PAUSE - 0.1) == 0
    assert circuit.most_running(10, FIRST_PAUSE) == 1
    circuit.note_failure(FIRST_PAUSE, FIRST_PAUSE, answered=True)
    assert circuit.most_running(10, 3 * FIRST_PAUSE - 0.1) == 0
    assert circuit.most_running(10, 3 * FIRST_PAUSE) == 1


@pytest.mark.parametrize("broken", range(FAILURES))
def test_a_server_that_could_not_be_reached_is_not_probed_early(broken: int) -> None:
    circuit = Circuit()
    for index in range(FAILURES):
        circuit.note_failure(0.0, 0.0, answered=index != broken)
    circuit.probe_early(1.0)
    assert circuit.most_running(10, 1.0) == 0
    # An answer to its probe shows that it is there again.
    circuit.note_failure(FIRST_PAUSE, FIRST_PAUSE, answered=True)
    circuit.probe_early(FIRST_PAUSE + 1)
    assert circuit.most_running(10, FIRST_PAUSE + 1) == 1


def test_an_early_probe_that_finds_no_server_is_the_last_one() -> None:
    circuit = answering()
    circuit.probe_early(1.0)
    circuit.note_failure(1.0, 1.0)
    circuit.probe_early(2.0)
    assert circuit.most_running(10, 2.0) == 0


def test_what_was_sent_before_it_opened_says_nothing_of_an_early_probe() -> None:
    circuit = answering(1.0)
    circuit.probe_early(2.0)
    circuit.note_failure(3.0, 0.5)
    assert circuit.most_running(10, 3.0) == 1


def test_early_probes_that_all_fail_come_to_an_end_until_the_pause_is_over() -> None:
    circuit = answering()
    for at in range(FAILURES):
        circuit.probe_early(at + 1.0)
        assert circuit.most_running(10, at + 1.0) == 1
        circuit.note_failure(at + 1.0, at + 1.0, answered=True)
    circuit.probe_early(FIRST_PAUSE - 1)
    assert circuit.most_running(10, FIRST_PAUSE - 1) == 0
    circuit.note_failure(FIRST_PAUSE, FIRST_PAUSE, answered=True)
    circuit.probe_early(FIRST_PAUSE + 1)
    assert circuit.most_running(10, FIRST_PAUSE + 1) == 1
