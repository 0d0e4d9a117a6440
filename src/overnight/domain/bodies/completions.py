"""The body of a completion."""

from __future__ import annotations

from overnight.domain.bodies import sampling
from overnight.domain.bodies.kinds import Kind, array, either, integer, text
from overnight.domain.bodies.records import body
from overnight.domain.bodies.tokens import prompts

FIELDS: dict[str, Kind] = (
    sampling.OPENAI
    | sampling.VLLM
    | sampling.LLAMA_CPP
    | {
        "prompt": prompts(shortest=0),
        "prompt_embeds": either(text(), array(text(), fewest=1)),
        "suffix": text(),
        # With `echo` nothing need be added to a prompt whose probabilities are wanted.
        "max_tokens": integer(0),
        "logprobs": integer(0, sampling.MOST_LIKELY_TOKENS),
    }
)

COMPLETION = body(FIELDS, needs=("model", "prompt"))
INTERACTIVE_COMPLETION = body(FIELDS | sampling.STREAMS, needs=("model", "prompt"))
