"""Bodies that are right and bodies that are wrong, for each target: what the check and the schemas are held against."""

from __future__ import annotations

from typing import Any

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
EMBEDDINGS = "/v1/embeddings"

USER = {"role": "user", "content": "hi"}
LEAST: dict[str, dict[str, Any]] = {
    CHAT: {"model": "m", "messages": [USER]},
    COMPLETIONS: {"model": "m", "prompt": "hi"},
    EMBEDDINGS: {"model": "m", "input": "hi"},
}
"""The shortest body of each target."""

FUNCTION = {"name": "look_up", "parameters": {"type": "object", "anything": [1]}, "strict": True}
TOOL = {"type": "function", "function": FUNCTION}
CUSTOM = {"type": "custom", "custom": {"name": "c", "format": {"type": "text"}}}
ALLOWED = {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [{"own": 1}]}}
CALL = {"id": "call_1", "type": "function", "function": {"name": "look_up", "arguments": "{}"}}
SCHEMA = {"type": "json_schema", "json_schema": {"name": "a-b_1", "schema": {"x-own": 1}, "strict": None}}
BREAKPOINT = {"mode": "explicit", "ttl": "30m"}


def says(*parts: dict[str, Any], role: str = "user") -> dict[str, Any]:
    """A chat of one message in parts."""
    return {"messages": [{"role": role, "content": list(parts)}]}


def answers(**message: Any) -> dict[str, Any]:
    """A chat in which the model has spoken before."""
    return {"messages": [USER, {"role": "assistant", **message}, USER]}


GOOD: dict[str, list[dict[str, Any]]] = {
    CHAT: [
        {},
        {"temperature": 0, "top_p": 1, "max_tokens": 1, "seed": 2**70, "n": 128, "user": "u"},
        {"temperature": 2, "max_completion_tokens": 16.0, "frequency_penalty": -2, "presence_penalty": 2.0},
        {"temperature": None, "tools": None, "stop": None, "stream": None, "stream_options": None, "audio": None},
        {"stream": False, "logprobs": True, "top_logprobs": 20},
        {"top_logprobs": 0},
        {"stop": "END"},
        {"stop": []},
        {"stop": ["x"] * 64},
        {"logit_bias": {"50256": -100, "7": 0.5}},
        {"logit_bias": [[15, False], ["text", 1.5]]},
        {"messages": [{"role": "system", "content": "x", "name": "n"}, {"role": "developer", "content": ""}, USER]},
        says({"type": "text", "text": "", "prompt_cache_breakpoint": BREAKPOINT}),
        says({"type": "image_url", "image_url": {"url": "data:image/png;base64,AA", "detail": "original"}}),
        says({"type": "input_audio", "input_audio": {"data": "AA", "format": "mp3"}}),
        says({"type": "file", "file": {"file_data": "AA", "filename": "a.pdf"}}),
        says({"type": "video_url", "video_url": {"url": "https://a.b/c"}, "uuid": "1"}),
        says({"type": "image_url", "image_url": None, "uuid": "seen"}),
        says({"type": "text", "text": "x"}, {"type": "refusal", "refusal": "no"}, role="assistant"),
        answers(content="x", refusal=None, annotations=[], audio=None, function_call=None, tool_calls=None),
        answers(content=None, tool_calls=[CALL]),
        answers(tool_calls=[{"id": "c", "type": "custom", "custom": {"name": "n", "input": "i"}}]),
        answers(content="x", reasoning_content="thought", reasoning=None),
        answers(content="", prefix=True),
        answers(audio={"id": "audio_1"}),
        {"messages": [USER, {"role": "tool", "tool_call_id": "call_1", "content": "42", "name": "look_up"}]},
        {"messages": [USER, {"role": "function", "name": "look_up", "content": None}]},
        {"tools": [TOOL], "tool_choice": "required", "parallel_tool_calls": False},
        {"tools": [TOOL] * 128, "tool_choice": {"type": "function", "function": {"name": "look_up"}}},
        {"tools": [CUSTOM]},
        {"tools": [TOOL], "tool_choice": ALLOWED},
        {"tools": [TOOL, CUSTOM], "tool_choice": {"type": "custom", "custom": {"name": "c"}}},
        {"tool_choice": "none"},
        {"tools": [], "tool_choice": None},
        {"functions": [FUNCTION], "function_call": {"name": "look_up"}},
        {"response_format": {"type": "text"}},
        {"response_format": {"type": "json_object", "schema": {}}},
        {"response_format": SCHEMA},
        {"metadata": {"k" * 64: "v" * 512}},
        {"metadata": {str(n): "" for n in range(16)}},
        {"modalities": ["text", "audio"], "audio": {"format": "wav", "voice": {"id": "voice_1"}}},
        {"prediction": {"type": "content", "content": [{"type": "text", "text": "x"}]}},
        {"reasoning_effort": "max", "verbosity": "low", "service_tier": "flex", "store": False},
        {"safety_identifier": "s" * 128, "prompt_cache_key": "k", "prompt_cache_retention": "24h"},
        {"prompt_cache_options": {"mode": "explicit", "ttl": "30m"}, "moderation": {"model": "o", "policy": None}},
        {"web_search_options": {"user_location": {"type": "approximate", "approximate": {"city": "Kyiv"}}}},
        {"top_k": -1, "min_p": 0.05, "repetition_penalty": 1.1, "min_tokens": 3, "ignore_eos": True},
        {"guided_json": {"type": "object"}, "guided_choice": ["a"], "chat_template_kwargs": {"enable_thinking": False}},
        {"structured_outputs": {"regex": "a+", "choice": None}, "stop_token_ids": [0, 7], "cache_salt": "s"},
        {"grammar": 'root ::= "x"', "cache_prompt": False, "n_predict": -1, "mirostat": 2, "samplers": ["top_k"]},
        {"json_schema": {}, "dry_sequence_breakers": ["\n"], "lora": [{"id": 0, "scale": 0.5}], "t_max_predict_ms": 9},
    ],
    COMPLETIONS: [
        {},
        {"prompt": ["a", ""], "best_of": 3, "n": 2, "suffix": "x", "echo": True, "max_tokens": 0, "logprobs": 0},
        {"prompt": [1, 2, 3]},
        {"prompt": [[1], [2, 3]]},
        {"prompt": ""},
        {"prompt": ["x"] * 2_048, "user": "u", "stop": ["\n"], "seed": -1},
        {"n_predict": 5, "grammar": "g", "guided_regex": "r", "top_k": 40, "response_format": SCHEMA},
    ],
    EMBEDDINGS: [
        {},
        {"input": ["a", "b"], "encoding_format": "base64", "dimensions": 1, "user": "u"},
        {"input": [0, 5]},
        {"input": [[1], [2]]},
        {"input": ["x"] * 2_048, "truncate_prompt_tokens": -1, "embd_normalize": 2},
    ],
}
"""What is added to the shortest body."""

BAD: dict[str, list[tuple[dict[str, Any], str]]] = {
    CHAT: [
        ({"max_token": 5}, ".max_token"),
        ({"Temperature": 1}, ".Temperature"),
        ({"extra_body": {}}, ".extra_body"),
        ({"id_slot": 0}, ".id_slot"),
        ({"temperature": 2.001}, ".temperature"),
        ({"temperature": -0.1}, ".temperature"),
        ({"temperature": "0.5"}, ".temperature"),
        ({"temperature": True}, ".temperature"),
        ({"top_p": 1.1}, ".top_p"),
        ({"max_tokens": 0}, ".max_tokens"),
        ({"max_tokens": 1.5}, ".max_tokens"),
        ({"max_completion_tokens": "9"}, ".max_completion_tokens"),
        ({"n": 0}, ".n"),
        ({"n": 129}, ".n"),
        ({"seed": 1.5}, ".seed"),
        ({"frequency_penalty": 2.1}, ".frequency_penalty"),
        ({"stop": ["x"] * 65}, ".stop"),
        ({"stop": ["x", 1]}, ".stop[1]"),
        ({"stop": [""]}, ".stop[0]"),
        ({"stop": 1}, ".stop"),
        ({"logprobs": 5}, ".logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, ".top_logprobs"),
        ({"top_logprobs": 1}, ".top_logprobs"),
        ({"logprobs": None, "top_logprobs": 1}, ".top_logprobs"),
        ({"stream_options": {"include_usage": True}}, ".stream_options"),
        ({"logit_bias": {"1": 101}}, ".logit_bias.1"),
        ({"logit_bias": {"1": "x"}}, ".logit_bias.1"),
        ({"messages": {}}, ".messages"),
        ({"messages": []}, ".messages"),
        ({"messages": [USER] * 2_049}, ".messages"),
        ({"messages": [USER, "hi"]}, ".messages[1]"),
        ({"messages": [{"content": "hi"}]}, ".messages[0].role"),
        ({"messages": [{"role": "User", "content": "hi"}]}, ".messages[0].role"),
        ({"messages": [{"role": ["user"], "content": "hi"}]}, ".messages[0].role"),
        ({"messages": [{"role": "user"}]}, ".messages[0].content"),
        ({"messages": [USER | {"content": None}]}, ".messages[0].content"),
        ({"messages": [USER | {"content": 5}]}, ".messages[0].content"),
        ({"messages": [USER | {"content": []}]}, ".messages[0].content"),
        ({"messages": [USER | {"tool_calls": [CALL]}]}, ".messages[0].tool_calls"),
        ({"messages": [USER | {"weight": 1}]}, ".messages[0].weight"),
        ({"messages": [{"role": "tool", "content": "x"}]}, ".messages[0].tool_call_id"),
        (answers(), ".messages[1].content"),
        (answers(content=None, tool_calls=None), ".messages[1].content"),
        (answers(tool_calls=[CALL] * 129), ".messages[1].tool_calls"),
        (answers(tool_calls=[CALL | {"function": {"name": "f"}}]), ".messages[1].tool_calls[0].function.arguments"),
        (answers(tool_calls=[{**CALL, "type": "other"}]), ".messages[1].tool_calls[0].type"),
        (says("hi"), ".messages[0].content[0]"),  # type: ignore[arg-type]
        (says({"type": "text"}), ".messages[0].content[0].text"),
        (says({"type": "text", "text": None}), ".messages[0].content[0].text"),
        (says({"text": "x"}), ".messages[0].content[0].type"),
        (says({"type": "image"}), ".messages[0].content[0].type"),
        (says({"type": "image_url", "image_url": "u"}), ".messages[0].content[0].image_url"),
        (says({"type": "image_url", "image_url": {"url": ""}}), ".messages[0].content[0].image_url.url"),
        (says(*[{"type": "text", "text": ""}] * 2_049), ".messages[0].content"),
        (says({"type": "image_url", "image_url": {"url": "u"}}, role="system"), ".messages[0].content[0].type"),
        ({"tools": [TOOL] * 129}, ".tools"),
        ({"tools": [{"type": "function"}]}, ".tools[0].function"),
        ({"tools": [{"type": "web_search"}]}, ".tools[0].type"),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, ".tools[0].function.name"),
        ({"tools": [{"type": "function", "function": {"name": "x" * 65}}]}, ".tools[0].function.name"),
        ({"tools": [{"type": "function", "function": FUNCTION | {"parameters": []}}]}, ".tools[0].function.parameters"),
        ({"tool_choice": "any"}, ".tool_choice"),
        ({"tool_choice": {"type": "function", "name": "f"}}, ".tool_choice.name"),
        ({"tool_choice": "auto"}, ".tool_choice"),
        ({"tools": [], "tool_choice": "required"}, ".tool_choice"),
        ({"tools": None, "tool_choice": ALLOWED}, ".tool_choice"),
        ({"functions": []}, ".functions"),
        ({"response_format": "json"}, ".response_format"),
        ({"response_format": {"type": "xml"}}, ".response_format.type"),
        ({"response_format": {"type": "json_schema"}}, ".response_format.json_schema"),
        ({"response_format": {"type": "json_schema", "json_schema": {}}}, ".response_format.json_schema.name"),
        ({"metadata": {"a": 1}}, ".metadata.a"),
        ({"metadata": {"k" * 65: "x"}}, ".metadata." + "k" * 65),
        ({"metadata": {"a": "v" * 513}}, ".metadata.a"),
        ({"metadata": {str(n): "" for n in range(17)}}, ".metadata"),
        ({"modalities": ["video"]}, ".modalities[0]"),
        ({"audio": {"format": "wav"}}, ".audio.voice"),
        ({"reasoning_effort": "huge"}, ".reasoning_effort"),
        ({"safety_identifier": "s" * 129}, ".safety_identifier"),
        ({"top_k": -2}, ".top_k"),
        ({"min_p": 2}, ".min_p"),
        ({"structured_outputs": {}}, ".structured_outputs.json"),
        ({"chat_template_kwargs": []}, ".chat_template_kwargs"),
        ({"stop_token_ids": [1, "2"]}, ".stop_token_ids"),
        ({"mirostat": 3}, ".mirostat"),
        ({"n_predict": -2}, ".n_predict"),
        ({"grammar": {}}, ".grammar"),
        ({"prompt": "x"}, ".prompt"),
    ],
    COMPLETIONS: [
        ({"messages": [USER]}, ".messages"),
        ({"max_completion_tokens": 5}, ".max_completion_tokens"),
        ({"prompt": []}, ".prompt"),
        ({"prompt": 5}, ".prompt"),
        ({"prompt": ["a", 1]}, ".prompt[1]"),
        ({"prompt": [1, "a"]}, ".prompt"),
        ({"prompt": [1, -1]}, ".prompt"),
        ({"prompt": [1, True]}, ".prompt"),
        ({"prompt": [[1], []]}, ".prompt[1]"),
        ({"prompt": [[1], [1.5]]}, ".prompt[1]"),
        ({"prompt": ["x"] * 2_049}, ".prompt"),
        ({"max_tokens": -1}, ".max_tokens"),
        ({"logprobs": 21}, ".logprobs"),
        ({"logprobs": True}, ".logprobs"),
        ({"echo": 1}, ".echo"),
        ({"tools": [TOOL]}, ".tools"),
    ],
    EMBEDDINGS: [
        ({"temperature": 1}, ".temperature"),
        ({"max_tokens": 1}, ".max_tokens"),
        ({"input": ""}, ".input"),
        ({"input": ["a", ""]}, ".input[1]"),
        ({"input": []}, ".input"),
        ({"input": [[]]}, ".input[0]"),
        ({"input": {"text": "a"}}, ".input"),
        ({"dimensions": 0}, ".dimensions"),
        ({"encoding_format": "binary"}, ".encoding_format"),
    ],
}
"""What is added to the shortest body, and where the refusal points."""

BEYOND_SCHEMAS: list[tuple[dict[str, Any], str]] = [
    ({"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "f"}}}, ".tool_choice.function.name"),
    ({"tools": [TOOL], "tool_choice": {"type": "custom", "custom": {"name": "look_up"}}}, ".tool_choice.custom.name"),
]
"""Bad chats of which no schema can tell."""
