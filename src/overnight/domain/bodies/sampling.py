"""Fields that chat completions and completions share: how tokens are chosen, and when an answer ends."""

from __future__ import annotations

from overnight.domain.bodies.kinds import (
    Kind,
    Schema,
    array,
    boolean,
    choice,
    either,
    integer,
    mapping,
    nothing,
    number,
    own_object,
    text,
)
from overnight.domain.bodies.records import record
from overnight.domain.bodies.tokens import tokens
from overnight.domain.bodies.tools import RESPONSE_FORMAT, STRUCTURED_OUTPUTS

MOST_STOPS = 64
"""Stop sequences. OpenAI's API takes 4, vLLM and llama.cpp more; a server that takes fewer refuses the request."""

MOST_CHOICES = 128
"""Answers to one request (`n`), as OpenAI's API has it."""

MOST_LIKELY_TOKENS = 20
"""Whose probabilities may be asked for at each place, as in OpenAI's API for chats."""

_INT64 = 2**63
_NO_AUTO: Schema = {"not": {"anyOf": [{"const": "auto"}, {"pattern": "^auto-"}]}}
_text = text(shortest=1)
_false = boolean()

MODEL = Kind(_text.check, _text.schema | _NO_AUTO, _text.is_called, _text.takes)
STREAM = Kind(_false.check, {"const": False}, "left out, null or false", _false.takes)
"""Both are looked at before the other fields, with codes of their own for `auto` and `true`."""

STREAMS: dict[str, Kind] = {
    "stream": boolean(),
    "stream_options": record(
        {"include_usage": boolean(), "include_obfuscation": boolean(), "continuous_usage_stats": boolean()}
    ),
}
"""In the place of these in `OPENAI` where somebody waits for the answer. The last option is vLLM's."""

OPENAI: dict[str, Kind] = {
    "model": MODEL,
    "stream": STREAM,
    "stream_options": nothing("is only for streams; results of a batch are not streamed"),
    "temperature": number(0, 2),
    "top_p": number(0, 1),
    "frequency_penalty": number(-2, 2),
    "presence_penalty": number(-2, 2),
    # llama.cpp takes pairs, too, and `false` for a token that must not come.
    "logit_bias": either(
        mapping(either(number(-100, 100), boolean())),
        array(array(either(number(), text(), boolean()), fewest=2, most=2)),
    ),
    "n": integer(1, MOST_CHOICES),
    "seed": integer(),
    "stop": either(text(shortest=1), array(text(shortest=1), most=MOST_STOPS)),
    "user": text(),
}

VLLM: dict[str, Kind] = {
    "top_k": integer(-1),
    "min_p": number(0, 1),
    "repetition_penalty": number(0),
    "length_penalty": number(),
    "use_beam_search": boolean(),
    "watermarking": boolean(),
    "best_of": integer(0, MOST_CHOICES),
    "min_tokens": integer(0),
    "ignore_eos": boolean(),
    "stop_token_ids": tokens(),
    "include_stop_str_in_output": boolean(),
    "skip_special_tokens": boolean(),
    "spaces_between_special_tokens": boolean(),
    "add_special_tokens": boolean(),
    "truncate_prompt_tokens": integer(-1),
    "truncation_side": choice("left", "right"),
    "allowed_token_ids": tokens(),
    "bad_words": array(text()),
    "prompt_logprobs": integer(-1),
    "logprob_token_ids": tokens(fewest=1),
    "echo": boolean(),
    "response_format": RESPONSE_FORMAT,
    "structured_outputs": STRUCTURED_OUTPUTS,
    "guided_json": either(text(), own_object()),
    "guided_json_object": boolean(),
    "guided_regex": text(),
    "guided_choice": array(text(), fewest=1),
    "guided_grammar": text(),
    "guided_decoding_backend": text(),
    "guided_whitespace_pattern": text(),
    "structural_tag": text(),
    "thinking_token_budget": integer(-1),
    "repetition_detection": record(
        {"max_pattern_size": integer(0), "min_pattern_size": integer(0), "min_count": integer(0)}
    ),
    "priority": integer(-_INT64, _INT64 - 1),
    "request_id": text(),
    "session_id": text(),
    "cache_salt": text(1, 1_024),
    "return_token_ids": boolean(),
    "return_tokens_as_token_ids": boolean(),
    "return_token_offsets": boolean(),
    "return_mm_kwargs": boolean(),
    "routed_experts_prompt_start": integer(0),
    "kv_transfer_params": own_object(),
    "ec_transfer_params": own_object(),
    "vllm_xargs": own_object(),
    "stream_interval": integer(1),
}

LLAMA_CPP: dict[str, Kind] = {
    "n_predict": integer(-1),
    "n_cmpl": integer(1, MOST_CHOICES),
    "n_indent": integer(0),
    "n_keep": integer(-1),
    "n_discard": integer(0),
    "n_probs": integer(0),
    "n_cache_reuse": integer(0),
    "min_keep": integer(0),
    "t_max_prompt_ms": integer(-1),
    "t_max_predict_ms": integer(-1),
    "cache_prompt": boolean(),
    "typical_p": number(),
    "top_n_sigma": number(),
    "xtc_probability": number(0, 1),
    "xtc_threshold": number(0, 1),
    "dynatemp_range": number(),
    "dynatemp_exponent": number(),
    "repeat_last_n": integer(-1),
    "repeat_penalty": number(),
    "dry_multiplier": number(),
    "dry_base": number(),
    "dry_allowed_length": integer(0),
    "dry_penalty_last_n": integer(-1),
    "dry_sequence_breakers": array(text(), fewest=1),
    "mirostat": integer(0, 2),
    "mirostat_tau": number(),
    "mirostat_eta": number(),
    "adaptive_target": number(None, 1),
    "adaptive_decay": number(0, 0.99),
    "samplers": either(text(), array(text())),
    "backend_sampling": boolean(),
    "post_sampling_probs": boolean(),
    "grammar": text(),
    "grammar_lazy": boolean(),
    "grammar_triggers": array(own_object()),
    "preserved_tokens": array(text()),
    "json_schema": own_object(),
    "lora": array(record({"id": integer(0), "scale": number()}, needs=("id", "scale"))),
    "response_fields": array(text()),
    "return_tokens": boolean(),
    "timings_per_token": boolean(),
    "verbose": boolean(),
    "reasoning_budget_tokens": integer(-1),
    "reasoning_budget_start_tag": text(),
    "reasoning_budget_end_tag": text(),
    "reasoning_budget_end_tags": array(text()),
    "reasoning_budget_message": text(),
    "reasoning_control": boolean(),
}
"""Without `id_slot`: which of its slots a request takes is left to the server, or a batch would run on one of them."""
