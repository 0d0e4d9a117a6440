"""Turns an embedding model of the BERT family, as Transformers keep it, into a GGUF file that llama.cpp loads."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from overnight.engine.errors import EngineError
from overnight.engine.gguf_writer import Tensor, write_gguf
from overnight.engine.model import ModelFile, read_model
from overnight.engine.safetensors import Safetensors
from overnight.engine.transformers_folder import read_facts, read_json

FORM = 1
"""Raised when the files come out differently, so that those of the last form are not used."""
MEAN, FIRST = 1, 2
MOSTLY_F16 = 1
_CONTROL, _UNKNOWN, _NORMAL = 3, 2, 1
_OUTSIDE = {
    "embeddings.word_embeddings": "token_embd",
    "embeddings.position_embeddings": "position_embd",
    "embeddings.token_type_embeddings": "token_types",
    "embeddings.LayerNorm": "token_embd_norm",
}
_INSIDE = {
    "attention.self.query": "attn_q",
    "attention.self.key": "attn_k",
    "attention.self.value": "attn_v",
    "attention.output.dense": "attn_output",
    "attention.output.LayerNorm": "attn_output_norm",
    "intermediate.dense": "ffn_up",
    "output.dense": "ffn_down",
    "output.LayerNorm": "layer_output_norm",
}
_NAME = re.compile(r"(?:bert\.)?(?P<part>(?:encoder\.layer\.(?P<layer>\d+)\.(?P<inside>.+))|.+)\.(?P<kind>weight|bias)")


def can_be_converted(folder: Path) -> bool:
    """Whether it is such a model, with words in pieces and weights in one file."""
    return (
        read_facts(folder).config.get("model_type") == "bert"
        and (folder / "vocab.txt").is_file()
        and (folder / "model.safetensors").is_file()
    )


def converted(model: ModelFile, cache: Path) -> ModelFile:
    """The same model as a GGUF file in the folder `cache`, written there unless it is there already."""
    weights = model.path / "model.safetensors"
    try:
        state = weights.stat()
        mark = hashlib.sha256(f"{FORM} {weights} {state.st_size} {state.st_mtime_ns}".encode()).hexdigest()[:12]
        path = cache / f"{model.id}-{mark}.gguf"
        if not path.exists():
            cache.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_gguf(path, _values(model), list(_tensors(Safetensors(weights))))
    except (OSError, KeyError, ValueError, TypeError) as error:
        raise EngineError(f"{model.path} cannot be turned into a GGUF file: {error}.") from error
    return replace(read_model(path), id=model.id, aliases=model.aliases)


def _values(model: ModelFile) -> Mapping[str, tuple[str, Any]]:
    config = read_facts(model.path).config
    words = (model.path / "vocab.txt").read_text("utf-8").rstrip("\n").split("\n")
    at = {word: number for number, word in enumerate(words)}
    return {
        "general.architecture": ("str", "bert"),
        "general.name": ("str", model.id),
        "general.file_type": ("u32", MOSTLY_F16),
        "bert.context_length": ("u32", config["max_position_embeddings"]),
        "bert.embedding_length": ("u32", config["hidden_size"]),
        "bert.feed_forward_length": ("u32", config["intermediate_size"]),
        "bert.block_count": ("u32", config["num_hidden_layers"]),
        "bert.attention.head_count": ("u32", config["num_attention_heads"]),
        "bert.attention.layer_norm_epsilon": ("f32", config["layer_norm_eps"]),
        "bert.attention.causal": ("bool", False),
        "bert.pooling_type": ("u32", _pooling(model.path)),
        "tokenizer.ggml.model": ("str", "bert"),
        "tokenizer.ggml.pre": ("str", "default"),
        "tokenizer.ggml.token_type_count": ("u32", config["type_vocab_size"]),
        "tokenizer.ggml.tokens": ("str*", [_piece(word) for word in words]),
        "tokenizer.ggml.token_type": ("i32*", [_kind(word) for word in words]),
        "tokenizer.ggml.padding_token_id": ("u32", at["[PAD]"]),
        "tokenizer.ggml.unknown_token_id": ("u32", at["[UNK]"]),
        "tokenizer.ggml.bos_token_id": ("u32", at["[CLS]"]),
        "tokenizer.ggml.seperator_token_id": ("u32", at["[SEP]"]),
        "tokenizer.ggml.mask_token_id": ("u32", at["[MASK]"]),
    }


def _pooling(folder: Path) -> int:
    path = folder / "1_Pooling" / "config.json"
    pooling = read_json(path) if path.is_file() else {}
    return FIRST if pooling.get("pooling_mode_cls_token") else MEAN


def _piece(word: str) -> str:
    """GGUF marks where a word begins, a vocabulary of BERT where one goes on."""
    if _kind(word) != _NORMAL:
        return word
    return word[2:] if word.startswith("##") else f"▁{word}"


def _kind(word: str) -> int:
    if word == "[UNK]":
        return _UNKNOWN
    return _CONTROL if word.startswith("[") and word.endswith("]") and len(word) > 2 else _NORMAL


def _tensors(weights: Safetensors) -> Iterator[Tensor]:
    for name in weights:
        called = _called(name)
        if called is None:
            continue
        shape = weights.shape(name)
        # Matrices halve; what is added to each token is small and stays exact.
        halved = len(shape) == 2 and not called.startswith(("position_embd", "token_types"))
        yield Tensor(called, shape, np.float16 if halved else np.float32, lambda name=name: weights.read(name))  # type: ignore[misc]


def _called(name: str) -> str | None:
    """The name that llama.cpp has for a tensor; None for what it makes no vectors with."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    if match["layer"] is None:
        outside = _OUTSIDE.get(match["part"])
        return outside and f"{outside}.{match['kind']}"
    inside = _INSIDE.get(match["inside"])
    return inside and f"blk.{match['layer']}.{inside}.{match['kind']}"
