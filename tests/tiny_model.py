"""Writes language models small enough for tests: random weights, but the real file format and engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
WORDS = ("the", "a", "of", "to", "and", "in", "is", "it", "you", "that", "he", "was", "for", "on", "are", "with")
WIDTH = 64
LAYERS = 2
HEADS = 4
HIDDEN = 128


def write_tiny_model(
    path: Path,
    *,
    name: str = "Tiny Random",
    context_length: int = 2048,
    seed: int = 7,
    chat_template: bool = True,
    template: str = CHAT_TEMPLATE,
    pooling: bool = False,
) -> Path:
    """Write a random two-layer llama model (about 0.5 MB) that completes, chats and follows schemas.

    The same arguments give the same bytes. Its tokenizer is byte-level, so any text can be its
    prompt. With `pooling` the file says how to pool vectors, as those of embedding models do.
    """
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name(name)
    writer.add_context_length(context_length)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(HIDDEN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    if pooling:
        writer.add_pooling_type(gguf.PoolingType.MEAN)
    words = _add_byte_level_tokenizer(writer)
    if chat_template:
        writer.add_chat_template(template)
    _add_random_tensors(writer, _llama_shapes(words), seed)
    return _written(writer, path)


def _llama_shapes(words: int) -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (words, WIDTH),
        "output_norm.weight": (WIDTH,),
        "output.weight": (words, WIDTH),
    }
    for layer in range(LAYERS):
        shapes |= {
            f"blk.{layer}.attn_norm.weight": (WIDTH,),
            f"blk.{layer}.attn_q.weight": (WIDTH, WIDTH),
            f"blk.{layer}.attn_k.weight": (WIDTH, WIDTH),
            f"blk.{layer}.attn_v.weight": (WIDTH, WIDTH),
            f"blk.{layer}.attn_output.weight": (WIDTH, WIDTH),
            f"blk.{layer}.ffn_norm.weight": (WIDTH,),
            f"blk.{layer}.ffn_gate.weight": (HIDDEN, WIDTH),
            f"blk.{layer}.ffn_up.weight": (HIDDEN, WIDTH),
            f"blk.{layer}.ffn_down.weight": (WIDTH, HIDDEN),
        }
    return shapes


def write_tiny_embedding_model(
    path: Path, *, name: str = "Tiny Embedder", context_length: int = 256, seed: int = 7
) -> Path:
    """Write a random two-layer BERT (about 0.4 MB) that only makes embeddings of 64 numbers, mean pooled."""
    writer = gguf.GGUFWriter(path, "bert")
    writer.add_name(name)
    writer.add_context_length(context_length)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(HIDDEN)
    writer.add_head_count(HEADS)
    writer.add_layer_norm_eps(1e-12)
    writer.add_causal_attention(False)
    writer.add_pooling_type(gguf.PoolingType.MEAN)
    words = _add_word_piece_tokenizer(writer)
    shapes: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (words, WIDTH),
        "token_types.weight": (2, WIDTH),
        "position_embd.weight": (context_length, WIDTH),
        "token_embd_norm.weight": (WIDTH,),
        "token_embd_norm.bias": (WIDTH,),
    }
    for layer in range(LAYERS):
        block: dict[str, tuple[int, ...]] = {
            "attn_q": (WIDTH, WIDTH),
            "attn_k": (WIDTH, WIDTH),
            "attn_v": (WIDTH, WIDTH),
            "attn_output": (WIDTH, WIDTH),
            "attn_output_norm": (WIDTH,),
            "ffn_up": (HIDDEN, WIDTH),
            "ffn_down": (WIDTH, HIDDEN),
            "layer_output_norm": (WIDTH,),
        }
        for part, shape in block.items():
            shapes[f"blk.{layer}.{part}.weight"] = shape
            shapes[f"blk.{layer}.{part}.bias"] = shape[:1]
    _add_random_tensors(writer, shapes, seed)
    return _written(writer, path)


def _add_byte_level_tokenizer(writer: Any) -> int:
    """256 bytes, a few common words made of merges, and the marks of ChatML. Returns the number of tokens."""
    tokens = [_byte_as_text(byte) for byte in range(256)]
    merges: list[str] = []
    for word in WORDS:
        made = "Ġ"
        for letter in word:
            if made + letter not in tokens:
                merges.append(f"{made} {letter}")
                tokens.append(made + letter)
            made += letter
    kinds = [gguf.TokenType.NORMAL] * len(tokens)
    marks = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens + marks)
    writer.add_token_types(kinds + [gguf.TokenType.CONTROL] * len(marks))
    writer.add_token_merges(merges)
    writer.add_bos_token_id(len(tokens) + 1)
    writer.add_eos_token_id(len(tokens) + 2)
    writer.add_add_bos_token(False)
    return len(tokens) + len(marks)


def _add_word_piece_tokenizer(writer: Any) -> int:
    """Letters, signs and a few words in the form of BERT's vocabulary. Returns the number of tokens."""
    signs = [chr(code) for code in range(33, 127) if not chr(code).isupper()]
    marks = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    # A GGUF vocabulary marks where a word begins; a WordPiece file marks where one goes on.
    tokens = marks + [f"▁{text}" for text in [*signs, *(word for word in WORDS if len(word) > 1)]] + signs
    writer.add_tokenizer_model("bert")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(tokens)
    writer.add_token_types([gguf.TokenType.CONTROL] * len(marks) + [gguf.TokenType.NORMAL] * (len(tokens) - len(marks)))
    writer.add_token_type_count(2)
    writer.add_pad_token_id(0)
    writer.add_unk_token_id(1)
    writer.add_sep_token_id(3)
    writer.add_bos_token_id(2)
    writer.add_mask_token_id(4)
    return len(tokens)


def _byte_as_text(byte: int) -> str:
    """The printable stand-in of a byte in GPT-2's byte-level vocabularies."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    if byte in printable:
        return chr(byte)
    return chr(256 + [other for other in range(256) if other not in printable].index(byte))


def _add_random_tensors(writer: Any, shapes: dict[str, tuple[int, ...]], seed: int) -> None:
    chance = np.random.default_rng(seed)
    for name, shape in shapes.items():
        values = chance.standard_normal(shape) * 0.3
        if "norm" in name and name.endswith("weight"):
            values = np.ones(shape)
        writer.add_tensor(name, values.astype(np.float32))


def _written(writer: Any, path: Path) -> Path:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
