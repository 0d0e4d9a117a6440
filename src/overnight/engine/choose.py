"""Which engine serves a model, and the model in the form that this engine loads."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from overnight.engine.bert_gguf import can_be_converted, converted
from overnight.engine.errors import EngineError
from overnight.engine.model import ModelFile
from overnight.engine.names import Engine
from overnight.engine.vllm import find_vllm

NVIDIA_GPUS = Path("/proc/driver/nvidia/gpus")
LONGEST_LOOK = 10.0


def choose_engine(model: ModelFile, asked: Engine | None, vllm: Path | None) -> Engine:
    """The one that was asked for; else vLLM where there is CUDA, and llama.cpp elsewhere.

    Without vLLM a GGUF file runs on llama.cpp on any machine. `vllm` names its program.
    """
    if asked is not None:
        return asked
    if not has_cuda() or (model.is_gguf and find_vllm(vllm) is None):
        return Engine.LLAMA_CPP
    return Engine.VLLM


def has_cuda() -> bool:
    """Whether this process may use an NVIDIA GPU, seen without a library of theirs."""
    if os.environ.get("CUDA_VISIBLE_DEVICES", "all").strip() in ("", "-1", "NoDevFiles"):
        return False
    try:
        if any(NVIDIA_GPUS.iterdir()):
            return True
    except OSError:
        pass
    program = shutil.which("nvidia-smi")
    if program is None:
        return False
    try:
        told = subprocess.run([program, "-L"], capture_output=True, timeout=LONGEST_LOOK, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return False
    return told.returncode == 0 and b"GPU" in told.stdout


def for_llama_cpp(model: ModelFile, cache: Path) -> ModelFile:
    """The model as a GGUF file, made in the folder `cache` where it can be. EngineError says what to do instead."""
    if model.is_gguf:
        return model
    if can_be_converted(model.path):
        return converted(model, cache)
    raise EngineError(
        f"{model.path} is a Transformers model, which llama.cpp does not load. Name a GGUF file of it"
        " (many are on Hugging Face, under names that end in -GGUF), or serve it with --engine vllm on a machine with"
        " a GPU."
    )
