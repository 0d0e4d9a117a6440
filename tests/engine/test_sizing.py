"""What an engine gets when nobody says."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from overnight.engine import memory, sizing
from overnight.engine.cost import Cost, read_cost
from overnight.engine.launch import llama_cpp
from overnight.engine.model import read_model
from overnight.engine.sizing import Size, fit


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


GIB = 1 << 30
SMOL = Cost(weights=100_000_000, token=23_040)
"""Of SmolLM2 135M."""
EMBEDS = Cost(weights=0, pair=64)
WANTED = Size(4, 8_192)


def test_the_context_is_the_models_own_where_the_memory_allows_it() -> None:
    assert fit(SMOL, WANTED, 4 * GIB) == WANTED
    assert fit(Cost(), Size(16, 10**6), 0) == Size(16, 10**6)


def test_the_context_is_cut_to_what_fits_before_slots_are() -> None:
    cut = fit(SMOL, WANTED, GIB)

    assert cut.slots == 4
    assert sizing.SHORT_CONTEXT < cut.context < WANTED.context
    assert cut.context % sizing.CONTEXT_STEP == 0
    assert SMOL.of(4, cut.context) <= SMOL.weights + (GIB - SMOL.weights) // sizing.PARTS_OF_MEMORY
    assert SMOL.of(4, cut.context + sizing.CONTEXT_STEP) > SMOL.weights + (GIB - SMOL.weights) // 2


@pytest.mark.parametrize(
    ("memory", "size"), [(GIB // 2, Size(2, 4_608)), (GIB // 4, Size(1, 3_584)), (0, Size(1, 512))]
)
def test_slots_are_spared_where_contexts_would_be_short(memory: int, size: Size) -> None:
    assert fit(SMOL, WANTED, memory) == size


def test_what_was_asked_for_is_not_cut() -> None:
    assert fit(SMOL, WANTED, GIB // 2, fix_context=True) == Size(1, 8_192)
    assert fit(SMOL, WANTED, GIB // 2, fix_slots=True).slots == 4
    assert fit(SMOL, WANTED, 0, fix_slots=True, fix_context=True) == WANTED


def test_an_input_to_embed_costs_its_length_squared() -> None:
    assert fit(EMBEDS, WANTED, GIB) == Size(4, 2_816)
    assert fit(EMBEDS, WANTED, 16 * GIB) == WANTED


def test_contexts_are_short_where_nothing_is_known_of_the_memory() -> None:
    assert fit(SMOL, WANTED, None) == Size(4, sizing.SHORT_CONTEXT)
    assert fit(SMOL, WANTED, None, fix_context=True) == WANTED


def test_the_header_tells_what_a_token_costs(tiny: Path, tiny_embedder: Path) -> None:
    smol = {"llama.block_count": 30, "llama.embedding_length": 576, "llama.attention.head_count": 9}
    lists = read_cost(smol, "llama", 7, embeds=False, encodes=False)
    grouped = read_cost(smol | {"llama.attention.head_count_kv": 3}, "llama", 7, embeds=False, encodes=False)
    long = smol | {"llama.attention.head_count_kv": 3, "llama.attention.key_length": 128}

    assert grouped == Cost(7, token=23_040)
    assert lists == Cost(7, token=3 * 23_040)
    assert read_cost(long, "llama", 7, embeds=True, encodes=False) == Cost(7, token=34_560, pair=36)
    assert read_model(tiny).cost == Cost(tiny.stat().st_size, token=512)
    assert read_model(tiny_embedder).cost == Cost(tiny_embedder.stat().st_size, pair=16)


def test_a_model_in_parts_weighs_what_they_weigh_together(tiny: Path, tmp_path: Path) -> None:
    parts = [tmp_path / f"m-0000{n}-of-00002.gguf" for n in (1, 2)]
    for part in parts:
        shutil.copy(tiny, part)

    assert read_model(parts[0]).cost.weights == 2 * tiny.stat().st_size


def test_what_is_cut_is_told_with_both_numbers(tiny: Path) -> None:
    model = read_model(tiny)
    (beyond,) = llama_cpp(model, context_length=9_999).notes
    (short,) = llama_cpp(model, cores=2, memory=2 << 20).notes

    assert "9,999 tokens; the model was made for 2,048" in beyond
    assert "4 slots of 2,048 tokens do not fit into free memory of 2 MiB: it gets 1 of" in short
    assert llama_cpp(model, context_length=2_048).notes == ()


def test_the_memory_of_a_container_is_what_its_limit_leaves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "MACHINE", tmp_path / "meminfo")
    monkeypatch.setattr(memory, "CONTAINER", tmp_path)
    assert memory.available_memory() is not None
    (tmp_path / "meminfo").write_text("MemTotal: 9000 kB\nMemFree: 10 kB\nMemAvailable: 3000 kB\n")
    assert memory.available_memory() == 3_072_000
    for name, text in (("max", "2000000"), ("current", "1500000"), ("stat", "anon 5\ninactive_file 250000\n")):
        (tmp_path / f"memory.{name}").write_text(text + "\n")
    assert memory.available_memory() == 750_000
    (tmp_path / "memory.max").write_text("max\n")
    assert memory.available_memory() == 3_072_000


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
