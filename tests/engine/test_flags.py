"""Flags of an engine are passed through to it, and read where Overnight must know them."""

from __future__ import annotations

from pathlib import Path

import pytest

from overnight.engine.errors import EngineError
from overnight.engine.flags import flag_name, flag_value
from overnight.engine.launch import llama_cpp
from overnight.engine.llama_flags import ATTRIBUTES, UnknownFlagError, set_flags
from overnight.engine.model import read_model
from overnight.engine.supervise import LocalEngine
from tests.engine.conftest import QUICK

xllamacpp = pytest.importorskip("xllamacpp", reason="the engine is an extra that is not installed")


@pytest.mark.parametrize(
    ("args", "value"),
    [
        (["--size=2"], "2"),
        (["--size", "3"], "3"),
        (["--other", "--size", "3", "--size=4"], "4"),
        (["--size"], None),
        (["size=2"], None),
    ],
)
def test_the_last_value_of_a_flag_counts(args: list[str], value: str | None) -> None:
    assert flag_value(args, "size") == value


def test_a_flag_has_one_name_however_it_is_written() -> None:
    written = ("--max_num_seqs=2", "--max-num-seqs", "--Max-Num-Seqs.field=1")
    assert [flag_name(arg) for arg in (*written, "-np", "2")] == ["max-num-seqs"] * 3 + ["parallel", None]
    short = ("-dp", "-dp=2", "--data-parallel-size=2")
    assert [flag_name(arg) for arg in (*short, "-dpl=2", "-tp")] == ["data-parallel-size"] * 3 + [None, None]


def test_flags_of_llama_cpp_set_its_parameters_in_their_types() -> None:
    parameters = xllamacpp.CommonParams()

    set_flags(
        parameters,
        ["--batch-size=512", "--flash-attn", "on", "--cache-type-k=q8_0", "--cache_type_v=f16", "--kv-unified",
         "--rope-freq-base=10000.5", "--chat-template=chatml", "--swa-full=off"],
    )  # fmt: skip

    assert (parameters.n_batch, parameters.kv_unified, parameters.swa_full) == (512, True, False)
    assert parameters.flash_attn_type.name.endswith("_ENABLED")
    assert (parameters.cache_type_k.name, parameters.cache_type_v.name) == ("GGML_TYPE_Q8_0", "GGML_TYPE_F16")
    assert (parameters.rope_freq_base, parameters.chat_template) == (10000.5, "chatml")


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["--odd=1"], "has no flag --odd"),
        (["512"], "has no flag 512"),
        (["--batch-size=many"], "--batch-size does not take 'many'"),
        (["--batch-size"], "--batch-size needs a value"),
        (["--cache-type-k=0"], "--cache-type-k does not take '0'"),
        (["--swa-full=perhaps"], "--swa-full does not take 'perhaps'"),
    ],
)
def test_a_flag_that_does_not_fit_is_named(args: list[str], says: str) -> None:
    with pytest.raises(UnknownFlagError, match=says):
        set_flags(xllamacpp.CommonParams(), args)


def test_every_flag_that_can_be_passed_is_a_parameter() -> None:
    parameters = xllamacpp.CommonParams()
    assert [name for name, attribute in ATTRIBUTES.items() if not hasattr(parameters, attribute)] == []


async def test_the_engine_runs_with_what_is_passed(tiny: Path) -> None:
    launch = llama_cpp(read_model(tiny), slots=1, context_length=256, threads=1, args=["--ubatch-size=64"])
    async with LocalEngine(launch, pace=QUICK) as engine:
        await engine.wait_ready()
    wrong = llama_cpp(read_model(tiny), slots=1, context_length=256, threads=1, args=["--flash-attn=perhaps"])
    async with LocalEngine(wrong, pace=QUICK) as engine:
        with pytest.raises(EngineError, match="the flag --flash-attn does not take 'perhaps'"):
            await engine.wait_ready()
