"""Which engine serves a model, and the model in the form that this engine loads."""

from __future__ import annotations

from pathlib import Path

from overnight.engine.bert_gguf import can_be_converted, converted
from overnight.engine.cuda import has_cuda
from overnight.engine.errors import EngineError
from overnight.engine.model import ModelFile
from overnight.engine.names import Engine
from overnight.engine.vllm import find_vllm


def choose_engine(model: ModelFile, asked: Engine | None, vllm: Path | None) -> Engine:
    """The one that was asked for; else vLLM where there is CUDA, and llama.cpp elsewhere.

    Without vLLM a GGUF file runs on llama.cpp on any machine. `vllm` names its program.
    """
    if asked is not None:
        return asked
    if not has_cuda() or (model.is_gguf and find_vllm(vllm) is None):
        return Engine.LLAMA_CPP
    return Engine.VLLM


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
