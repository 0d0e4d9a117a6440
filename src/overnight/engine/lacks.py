"""What an engine cannot do with a body: fields it would drop without a word, and forms it fails on."""

from __future__ import annotations

import re

_PARTS = ("image_url", "input_audio", "file", "audio_url", "video_url", "image_embeds", "refusal", "thinking")

LLAMA_CPP: frozenset[str] = frozenset(
    {
        # It answers 500 to media it has no projector for, and to tools that are not functions; 400 to other parts.
        *(f"messages.{part}" for part in _PARTS),
        "tools.custom",
        "messages.custom",
        # It calls whichever of all functions the model likes.
        "tool_choice.function",
        "tool_choice.custom",
        "tool_choice.allowed_tools",
        # It leaves out the call, or the name of the function.
        "messages.function_call",
        "messages.function",
        # It gives them in the form that chats have.
        "logprobs.number",
        # It answers as if these had not been there.
        "modalities.audio",
        "audio",
        "prediction",
        "verbosity",
        "web_search_options",
        "moderation",
        "functions",
        "function_call",
        "best_of",
        "use_beam_search",
        "length_penalty",
        "repetition_penalty",
        "watermarking",
        "min_tokens",
        "stop_token_ids",
        "include_stop_str_in_output",
        "allowed_token_ids",
        "bad_words",
        "prompt_logprobs",
        "logprob_token_ids",
        "truncate_prompt_tokens",
        "thinking_token_budget",
        "repetition_detection",
        "structured_outputs",
        "structural_tag",
        "guided_json",
        "guided_json_object",
        "guided_regex",
        "guided_choice",
        "guided_grammar",
        "documents",
        "chat_template",
        "messages.tools",
        "echo.true",
        "suffix",
        "prompt_embeds",
        "dimensions",
        "use_activation",
        "normalize",
        "return_token_ids",
        "return_tokens_as_token_ids",
        "return_prompt_text",
    }
)
"""Of every model. Left out is what says nothing about the answer (`user`, `metadata`, `store`, `priority` …): it may
come and go."""

_WITHOUT_TOOLS = frozenset({"tools", "tool_choice", "parallel_tool_calls", "messages.tool", "messages.tool_calls"})
_WITHOUT_CALLS = frozenset({"tool_choice.required", "messages.tool_calls"})
_EFFORT = "reasoning_effort"


def lacks_of_llama_cpp(template: str) -> frozenset[str]:
    """What it lacks with a model of this chat template; where that is empty it has one of its own, without tools.

    A prompt has of tools, and of the effort that is asked for, what the template writes. Without a form for calls in
    it, none can be made to come.
    """
    lacks = LLAMA_CPP if _EFFORT in template else LLAMA_CPP | {_EFFORT}
    if not re.search(r"\btools\b", template):
        return lacks | _WITHOUT_TOOLS
    return lacks if "tool_calls" in template else lacks | _WITHOUT_CALLS


VLLM: frozenset[str] = frozenset(
    {
        # It never takes these; other media it takes where its model does, and answers 400 where it does not.
        "messages.file",
        "tools.custom",
        # It answers as if these had not been there.
        "modalities.audio",
        "audio",
        "prediction",
        "verbosity",
        "web_search_options",
        "moderation",
        "functions",
        "function_call",
        # Since 0.12 it drops them: `structured_outputs` and `response_format` say the same.
        "guided_json",
        "guided_json_object",
        "guided_regex",
        "guided_choice",
        "guided_grammar",
        "structural_tag",
        # Fields of llama.cpp that change an answer.
        "n_predict",
        "n_cmpl",
        "n_probs",
        "n_indent",
        "t_max_predict_ms",
        "typical_p",
        "top_n_sigma",
        "xtc_probability",
        "dynatemp_range",
        "repeat_last_n",
        "repeat_penalty",
        "dry_multiplier",
        "mirostat",
        "adaptive_target",
        "samplers",
        "grammar",
        "json_schema",
        "response_fields",
        "reasoning_format",
        "reasoning_budget_tokens",
        "embd_normalize",
        "lora",
    }
)
"""What no table of fields of vLLM's has (seen in 0.33)."""
