"""Writes models as Transformers keep them, small enough for tests: random weights in the real file formats."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tests.tiny_model import CHAT_TEMPLATE

WIDTH = 64
LAYERS = 2
HEADS = 2
"""vLLM on processors has no attention for heads of less than 32 numbers."""
HIDDEN = 128
WORDS = ("the", "a", "of", "to", "and", "in", "is", "it", "you", "that")
MARKS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def write_safetensors(path: Path, tensors: Mapping[str, np.ndarray[Any, Any]]) -> None:
    """Write 32 or 16-bit floats by name."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, tensor in tensors.items():
        kind = "F32" if tensor.dtype == np.float32 else "F16"
        header[name] = {"dtype": kind, "shape": list(tensor.shape), "data_offsets": [at, at + tensor.nbytes]}
        at += tensor.nbytes
    raw = json.dumps(header).encode()
    raw += b" " * (-len(raw) % 8)
    path.write_bytes(len(raw).to_bytes(8, "little") + raw + b"".join(tensor.tobytes() for tensor in tensors.values()))


def write_tiny_bert(folder: Path, *, context_length: int = 64, seed: int = 7) -> Path:
    """An embedding model of two layers in the layout of Sentence Transformers (about 0.4 MB)."""
    (folder / "1_Pooling").mkdir(parents=True)
    signs = [chr(code) for code in range(33, 127) if not chr(code).isupper()]
    words = [*MARKS, *signs, *WORDS[2:], *(f"##{sign}" for sign in signs)]
    config = {
        "architectures": ["BertModel"],
        "model_type": "bert",
        "max_position_embeddings": context_length,
        "hidden_size": WIDTH,
        "intermediate_size": HIDDEN,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "layer_norm_eps": 1e-12,
        "type_vocab_size": 2,
        "vocab_size": len(words),
    }
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "modules.json").write_text("[]")
    (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode_mean_tokens": true}')
    (folder / "vocab.txt").write_text("\n".join(words) + "\n")
    write_safetensors(folder / "model.safetensors", _random(_bert_shapes(len(words), context_length), seed))
    return folder


def write_tiny_llama(folder: Path, *, context_length: int = 512, seed: int = 7) -> Path:
    """A model of two layers that completes and chats, with a byte-level tokenizer (about 0.4 MB)."""
    folder.mkdir(parents=True)
    tokens = [*(chr(code) for code in _printable()), "<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "max_position_embeddings": context_length,
        "hidden_size": WIDTH,
        "intermediate_size": HIDDEN,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": HEADS,
        "rms_norm_eps": 1e-5,
        "vocab_size": len(tokens),
        "torch_dtype": "float32",
        "bos_token_id": 257,
        "eos_token_id": 258,
    }
    (folder / "config.json").write_text(json.dumps(config))
    marks = [
        {"id": number, "content": token, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
         "special": True}
        for number, token in enumerate(tokens) if number >= 256
    ]  # fmt: skip
    tokenizer = {
        "version": "1.0",
        "added_tokens": marks,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {"type": "BPE", "vocab": {token: number for number, token in enumerate(tokens)}, "merges": []},
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    named = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>", "chat_template": CHAT_TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(named))
    write_safetensors(folder / "model.safetensors", _random(_llama_shapes(len(tokens)), seed))
    return folder


def _printable() -> list[int]:
    """The stand-ins of the 256 bytes in GPT-2's byte-level vocabularies."""
    direct = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [byte if byte in direct else next(others) for byte in range(256)]


def _bert_shapes(words: int, context: int) -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.position_ids_of_old": (1,),
        "embeddings.word_embeddings.weight": (words, WIDTH),
        "embeddings.position_embeddings.weight": (context, WIDTH),
        "embeddings.token_type_embeddings.weight": (2, WIDTH),
        "embeddings.LayerNorm.weight": (WIDTH,),
        "embeddings.LayerNorm.bias": (WIDTH,),
        "pooler.dense.weight": (WIDTH, WIDTH),
        "pooler.dense.bias": (WIDTH,),
    }
    parts: dict[str, tuple[int, ...]] = {
        "attention.self.query": (WIDTH, WIDTH),
        "attention.self.key": (WIDTH, WIDTH),
        "attention.self.value": (WIDTH, WIDTH),
        "attention.output.dense": (WIDTH, WIDTH),
        "attention.output.LayerNorm": (WIDTH,),
        "intermediate.dense": (HIDDEN, WIDTH),
        "output.dense": (WIDTH, HIDDEN),
        "output.LayerNorm": (WIDTH,),
    }
    for layer in range(LAYERS):
        for part, shape in parts.items():
            shapes[f"encoder.layer.{layer}.{part}.weight"] = shape
            shapes[f"encoder.layer.{layer}.{part}.bias"] = shape[:1]
    return shapes


def _llama_shapes(words: int) -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (words, WIDTH),
        "model.norm.weight": (WIDTH,),
        "lm_head.weight": (words, WIDTH),
    }
    for layer in range(LAYERS):
        at = f"model.layers.{layer}"
        shapes |= {f"{at}.{name}.weight": (WIDTH,) for name in ("input_layernorm", "post_attention_layernorm")}
        shapes |= {f"{at}.self_attn.{name}_proj.weight": (WIDTH, WIDTH) for name in "qkvo"}
        shapes |= {f"{at}.mlp.{name}_proj.weight": (HIDDEN, WIDTH) for name in ("gate", "up")}
        shapes[f"{at}.mlp.down_proj.weight"] = (WIDTH, HIDDEN)
    return shapes


def _random(shapes: dict[str, tuple[int, ...]], seed: int) -> dict[str, np.ndarray[Any, Any]]:
    chance = np.random.default_rng(seed)
    return {
        name: (np.ones(shape) if "norm" in name.lower() and name.endswith("weight") else
               chance.standard_normal(shape) * 0.3).astype(np.float32)
        for name, shape in shapes.items()
    }  # fmt: skip
