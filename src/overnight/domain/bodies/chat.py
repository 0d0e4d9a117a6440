"""The body of a chat completion."""

from __future__ import annotations

from typing import Any

from overnight.domain.bodies import sampling
from overnight.domain.bodies.kinds import (
    Kind,
    Wrong,
    array,
    boolean,
    choice,
    either,
    integer,
    mapping,
    nullable,
    own_object,
    text,
)
from overnight.domain.bodies.messages import MESSAGES, TEXT_CONTENT
from overnight.domain.bodies.records import body, record
from overnight.domain.bodies.tools import FUNCTION_CHOICE, FUNCTIONS, TOOL_CHOICE, TOOLS

_VOICE = either(text(shortest=1), record({"id": text(shortest=1)}, needs=("id",)))
_MODE = nullable(record({"mode": choice("score", "block")}, needs=("mode",)))
_PLACE = record({"city": text(), "country": text(), "region": text(), "timezone": text()})

_OPENAI: dict[str, Kind] = {
    "messages": MESSAGES,
    "max_tokens": integer(1),
    "max_completion_tokens": integer(1),
    "logprobs": boolean(),
    "top_logprobs": integer(0, sampling.MOST_LIKELY_TOKENS),
    "tools": TOOLS,
    "tool_choice": TOOL_CHOICE,
    "parallel_tool_calls": boolean(),
    "functions": FUNCTIONS,
    "function_call": FUNCTION_CHOICE,
    "reasoning_effort": choice("none", "minimal", "low", "medium", "high", "xhigh", "max"),
    "verbosity": choice("low", "medium", "high"),
    "modalities": array(choice("text", "audio"), fewest=1),
    "audio": record(
        {"format": choice("wav", "aac", "mp3", "flac", "opus", "pcm16"), "voice": _VOICE}, needs=("format", "voice")
    ),
    "prediction": record({"type": choice("content"), "content": TEXT_CONTENT}, needs=("type", "content")),
    "web_search_options": record(
        {
            "search_context_size": choice("low", "medium", "high"),
            "user_location": nullable(
                record({"type": choice("approximate"), "approximate": _PLACE}, needs=("type", "approximate"))
            ),
        }
    ),
    "moderation": record(
        {"model": text(shortest=1), "policy": nullable(record({"input": _MODE, "output": _MODE}))}, needs=("model",)
    ),
    "metadata": mapping(text(longest=512), most=16, longest_name=64),
    "store": boolean(),
    "service_tier": choice("auto", "default", "flex", "scale", "priority", "fast"),
    "safety_identifier": text(longest=128),
    "prompt_cache_key": text(),
    "prompt_cache_options": record({"mode": choice("implicit", "explicit"), "ttl": choice("30m")}),
    # The first name was written with a hyphen once.
    "prompt_cache_retention": choice("in_memory", "in-memory", "24h"),
}

_SERVERS: dict[str, Kind] = {
    "chat_template": text(),
    "chat_template_kwargs": own_object(),
    "add_generation_prompt": boolean(),
    "continue_final_message": either(boolean(), text()),
    "documents": array(own_object()),
    "include_reasoning": boolean(),
    "reasoning_format": text(),
    "parse_tool_calls": boolean(),
    "media_io_kwargs": mapping(own_object()),
    "mm_processor_kwargs": own_object(),
    "return_prompt_text": boolean(),
}

FIELDS: dict[str, Kind] = sampling.OPENAI | sampling.VLLM | sampling.LLAMA_CPP | _OPENAI | _SERVERS

_NO_PROBABILITIES = Wrong(".top_logprobs", "needs 'logprobs' to be true")


_ASKS = {"required": ["top_logprobs"], "properties": {"top_logprobs": {"type": "integer", "minimum": 1}}}
_HAS = {"required": ["logprobs"], "properties": {"logprobs": {"const": True}}}

_NO_TOOLS = Wrong(".tool_choice", "needs 'tools' to choose from")
_NO_CHOICE = {"not": {"enum": ["none", None]}}
_CHOOSES = {"required": ["tool_choice"], "properties": {"tool_choice": _NO_CHOICE}}
_HAS_TOOLS = {"required": ["tools"], "properties": {"tools": {"type": "array", "minItems": 1}}}


def _check_choice(value: dict[str, Any]) -> Wrong | None:
    """A choice needs tools, and a tool that it names must be one of them, which no JSON Schema can say."""
    chosen, tools = value.get("tool_choice"), value.get("tools")
    if chosen is None or chosen == "none":
        return None
    if not tools:
        return _NO_TOOLS
    kind = "" if isinstance(chosen, str) else chosen["type"]
    if kind not in ("function", "custom"):
        return None
    name = chosen[kind]["name"]
    if any(tool["type"] == kind and tool[kind]["name"] == name for tool in tools):
        return None
    return Wrong(f".tool_choice.{kind}.name", "is the name of none of the 'tools'")


def _chat(fields: dict[str, Kind]) -> Kind:
    known = body(fields, needs=("model", "messages"))

    def check(value: Any) -> Wrong | None:
        found = known.check(value)
        if found is None and value.get("top_logprobs") and value.get("logprobs") is not True:
            return _NO_PROBABILITIES
        return found or _check_choice(value)

    agree = {"if": _ASKS, "then": _HAS, "allOf": [{"if": _CHOOSES, "then": _HAS_TOOLS}]}
    return Kind(check, known.schema | agree, known.is_called, known.takes)


CHAT = _chat(FIELDS)
INTERACTIVE_CHAT = _chat(FIELDS | sampling.STREAMS)
