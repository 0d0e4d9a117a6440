"""What an engine gets when nobody says."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from overnight.engine import sizing
from overnight.engine.launch import llama_cpp
from overnight.engine.model import read_model


@pytest.mark.parametrize(("cores", "threads", "slots"), [(1, 1, 2), (2, 1, 4), (8, 7, 16), (64, 63, 16)])
def test_one_core_is_left_free_and_slots_grow_with_the_cores(cores: int, threads: int, slots: int) -> None:
    assert (sizing.default_threads(cores), sizing.default_slots(cores)) == (threads, slots)


@pytest.mark.parametrize(
    ("quota", "cores"),
    [("200000 100000\n", 2), ("50000 100000\n", 1), ("max 100000\n", 8), ("1600000 100000", 8), ("", 8), ("x 0", 8)],
)
def test_a_quota_of_the_container_lowers_the_cores(quota: str, cores: int) -> None:
    assert sizing.cores_within_quota(8, quota) == cores


def test_this_machine_has_cores() -> None:
    assert sizing.available_cores() >= 1


@pytest.mark.parametrize(
    ("model_context", "embedding", "context"),
    [(8_192, False, 4_096), (512, False, 512), (None, False, 4_096), (8_192, True, 2_048), (256, True, 256)],
)
def test_the_context_is_the_models_own_up_to_a_limit(model_context: int | None, embedding: bool, context: int) -> None:
    assert sizing.default_context(model_context, embedding) == context


def test_what_is_said_goes_before_what_fits(tiny: Path) -> None:
    model = read_model(tiny)

    own = llama_cpp(model, slots=7, context_length=1_024, threads=3, cores=2)
    fitting = llama_cpp(model, cores=2)
    beyond = llama_cpp(model, context_length=10**12)

    assert (own.slots, own.context_length) == (7, 1_024)
    assert own.command[0] == sys.executable
    assert own.command[-6:] == ("--slots", "7", "--context", "1024", "--threads", "3")
    assert (fitting.slots, fitting.context_length) == (4, 2_048)
    assert fitting.command[-1] == "1"
    assert beyond.context_length == model.context_length
