"""The body of a request for embeddings."""

from __future__ import annotations

from overnight.domain.bodies import sampling
from overnight.domain.bodies.kinds import Kind, boolean, choice, integer, text
from overnight.domain.bodies.records import body
from overnight.domain.bodies.tokens import prompts

_VLLM = (
    "add_special_tokens",
    "truncate_prompt_tokens",
    "truncation_side",
    "priority",
    "request_id",
    "cache_salt",
)

FIELDS: dict[str, Kind] = {name: sampling.OPENAI[name] for name in ("model", "stream", "user")} | {
    "input": prompts(shortest=1),
    "encoding_format": choice("float", "base64"),
    "dimensions": integer(1),
    **{name: sampling.VLLM[name] for name in _VLLM},
    "padding": choice("max_length", "do_not_pad"),
    "use_activation": boolean(),
    "normalize": boolean(),
    "embed_dtype": text(),
    "endianness": choice("native", "big", "little"),
    # llama.cpp's: which norm vectors are divided by.
    "embd_normalize": integer(-1),
}

EMBEDDING = body(FIELDS, needs=("model", "input"))
