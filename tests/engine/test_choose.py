"""Which engine serves a model: vLLM where there is a GPU, llama.cpp elsewhere, or the one that was asked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from overnight.engine import cuda
from overnight.engine.choose import choose_engine
from overnight.engine.cuda import has_cuda
from overnight.engine.model import read_folder, read_model
from overnight.engine.names import Engine
from tests.engine.drivers import write_stand_in
from tests.tiny_transformers import write_tiny_llama


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without a GPU and with no programs but those of a test."""
    monkeypatch.setattr(cuda, "NVIDIA_GPUS", tmp_path / "gpus")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return tmp_path


def add_nvidia_smi(folder: Path, says: str) -> None:
    program = folder / "nvidia-smi"
    program.write_text(f"#!/bin/sh\necho '{says}'\n")
    program.chmod(0o755)


def test_a_gpu_is_seen_by_its_driver_or_its_program(programs: Path) -> None:
    assert not has_cuda()
    add_nvidia_smi(programs, "No devices were found")
    assert not has_cuda()
    add_nvidia_smi(programs, "GPU 0: NVIDIA H200 (UUID: GPU-1)")
    assert has_cuda()
    (programs / "nvidia-smi").unlink()
    (programs / "gpus" / "0000:01:00.0").mkdir(parents=True)
    assert has_cuda()


def test_a_gpu_that_this_process_may_not_use_does_not_count(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add_nvidia_smi(programs, "GPU 0: NVIDIA H200 (UUID: GPU-1)")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert not has_cuda()


def test_the_engine_fits_the_machine_and_the_model(programs: Path, tiny: Path) -> None:
    gguf = read_model(tiny)
    folder = read_folder(write_tiny_llama(programs / "model"))
    assert [choose_engine(model, None, None) for model in (gguf, folder)] == [Engine.LLAMA_CPP] * 2
    add_nvidia_smi(programs, "GPU 0: NVIDIA H200 (UUID: GPU-1)")
    # Without vLLM a GGUF file still runs; the other model is told what is missing.
    assert [choose_engine(model, None, None) for model in (gguf, folder)] == [Engine.LLAMA_CPP, Engine.VLLM]
    write_stand_in(programs)
    assert [choose_engine(model, None, None) for model in (gguf, folder)] == [Engine.VLLM] * 2


def test_the_one_that_was_asked_for_is_taken_anywhere(programs: Path, tiny: Path) -> None:
    add_nvidia_smi(programs, "GPU 0: NVIDIA H200 (UUID: GPU-1)")
    assert choose_engine(read_model(tiny), Engine.LLAMA_CPP, None) is Engine.LLAMA_CPP
    (programs / "nvidia-smi").unlink()
    assert choose_engine(read_model(tiny), Engine.VLLM, None) is Engine.VLLM
