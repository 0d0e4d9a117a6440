"""Tools, functions and the form of an answer, as requests describe them."""

from __future__ import annotations

from overnight.domain.bodies.kinds import (
    array,
    boolean,
    choice,
    either,
    integer,
    nullable,
    own_object,
    pattern,
    text,
)
from overnight.domain.bodies.records import record, tagged

MOST_TOOLS = 128
"""Tools or functions of a request, and calls of a message: the number that OpenAI's API allows."""

_NAME = pattern("[A-Za-z0-9_-]{1,64}", "a name of 1 to 64 letters, digits, underscores and dashes")
_FUNCTION = record(
    {
        "name": _NAME,
        "description": nullable(text()),
        "parameters": nullable(own_object()),
        "strict": nullable(boolean()),
        "defer_loading": nullable(boolean()),
    },
    needs=("name",),
)
_GRAMMAR = record({"definition": text(), "syntax": choice("lark", "regex")}, needs=("definition", "syntax"))
_CUSTOM = record(
    {
        "name": _NAME,
        "description": text(),
        "format": tagged(
            "type",
            {
                "text": record({"type": choice("text")}, needs=("type",)),
                "grammar": record({"type": choice("grammar"), "grammar": _GRAMMAR}, needs=("type", "grammar")),
            },
        ),
    },
    needs=("name",),
)
FUNCTION_TOOL = record(
    {"type": choice("function"), "function": _FUNCTION, "defer_loading": nullable(boolean())},
    needs=("type", "function"),
)
TOOLS = array(
    tagged(
        "type",
        {
            "function": FUNCTION_TOOL,
            "custom": record({"type": choice("custom"), "custom": _CUSTOM}, needs=("type", "custom")),
        },
    ),
    most=MOST_TOOLS,
)
FUNCTIONS = array(_FUNCTION, fewest=1, most=MOST_TOOLS)

_BY_NAME = record({"name": text()}, needs=("name",))
_ALLOWED = record(
    {"mode": choice("auto", "required"), "tools": array(own_object(), most=MOST_TOOLS)}, needs=("mode", "tools")
)
TOOL_CHOICE = either(
    choice("none", "auto", "required"),
    tagged(
        "type",
        {
            "function": record({"type": choice("function"), "function": _BY_NAME}, needs=("type", "function")),
            "custom": record({"type": choice("custom"), "custom": _BY_NAME}, needs=("type", "custom")),
            "allowed_tools": record(
                {"type": choice("allowed_tools"), "allowed_tools": _ALLOWED}, needs=("type", "allowed_tools")
            ),
        },
    ),
)
FUNCTION_CHOICE = either(choice("none", "auto"), _BY_NAME)

_CALLED = record({"name": text(), "arguments": text()}, needs=("name", "arguments"))
FUNCTION_CALL = _CALLED
TOOL_CALLS = array(
    tagged(
        "type",
        {
            "function": record(
                {"type": choice("function"), "id": text(), "function": _CALLED, "index": integer(0)},
                needs=("id", "type", "function"),
            ),
            "custom": record(
                {
                    "type": choice("custom"),
                    "id": text(),
                    "index": integer(0),
                    "custom": record({"name": text(), "input": text()}, needs=("name", "input")),
                },
                needs=("id", "type", "custom"),
            ),
        },
    ),
    most=MOST_TOOLS,
)

_NAMED_SCHEMA = record(
    {
        "name": _NAME,
        "description": nullable(text()),
        "schema": nullable(own_object()),
        "strict": nullable(boolean()),
    },
    needs=("name",),
)
RESPONSE_FORMAT = tagged(
    "type",
    {
        "text": record({"type": choice("text")}, needs=("type",)),
        # llama.cpp takes a schema here, too.
        "json_object": record({"type": choice("json_object"), "schema": nullable(own_object())}, needs=("type",)),
        "json_schema": record(
            {"type": choice("json_schema"), "json_schema": _NAMED_SCHEMA}, needs=("type", "json_schema")
        ),
        # vLLM's, in its present and its former form.
        "structural_tag": record(
            {
                "type": choice("structural_tag"),
                "format": own_object(),
                "structures": array(own_object()),
                "triggers": array(text()),
            },
            needs=("type",),
        ),
    },
)
STRUCTURED_OUTPUTS = record(
    {
        "json": nullable(either(text(), own_object())),
        "regex": nullable(text()),
        "choice": nullable(array(text(), fewest=1)),
        "grammar": nullable(text()),
        "json_object": nullable(boolean()),
        "structural_tag": nullable(text()),
        "disable_fallback": boolean(),
        "disable_any_whitespace": boolean(),
        "disable_additional_properties": boolean(),
        "whitespace_pattern": nullable(text()),
    },
    one_of=("json", "regex", "choice", "grammar", "json_object", "structural_tag"),
)
