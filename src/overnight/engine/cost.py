"""What a model takes of memory on llama.cpp, as the header of its file tells."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from overnight.engine.gguf_header import Value

BYTES_OF_A_NUMBER = 2
"""Keys and values are kept in 16 bits each."""
BYTES_OF_A_SCORE = 4


@dataclass(frozen=True, slots=True)
class Cost:
    """In bytes. Zero where the file does not say."""

    weights: int = 0
    token: int = 0
    """Of each token that a slot has room for: the keys and values of all layers."""
    pair: int = 0
    """Of each pair of tokens of an input that is computed in one piece, as those to embed are."""

    def of(self, slots: int, context: int) -> int:
        """Of all together, with so many slots of so many tokens."""
        return self.weights + self.token * slots * context + self.pair * context * context


def read_cost(header: Mapping[str, Value], architecture: str, weights: int, *, embeds: bool, encodes: bool) -> Cost:
    """Rather too much than too little: layers that keep less than others count as if they kept all.

    `embeds`: it makes vectors; `encodes`: it does only that, and keeps nothing of a prompt.
    """

    def number(name: str) -> int:
        value = header.get(f"{architecture}.{name}")
        return value if type(value) is int and value > 0 else 0

    width, heads = number("embedding_length"), number("attention.head_count")
    # Lists, as of layers that differ, are not read.
    kept = number("attention.head_count_kv") or heads
    each = width // heads if heads else 0
    both = (number("attention.key_length") or each) + (number("attention.value_length") or each)
    token = number("block_count") * (kept * both if kept else 2 * width) * BYTES_OF_A_NUMBER
    return Cost(weights, 0 if encodes else token, heads * BYTES_OF_A_SCORE if embeds else 0)
