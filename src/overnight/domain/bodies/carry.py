"""What of a body a route cannot carry: fields and forms that its server would drop, or fail on."""

from __future__ import annotations

import msgspec

Lacks = frozenset[str]
"""Names of fields; besides, forms of some of them.

`messages.image_url` stands for content parts of that type, `messages.tool` for messages of that role,
`messages.tool_calls` for messages with that field and `messages.custom` for calls of that type in it; `tools.custom`
for tools of that type, `tool_choice.required` and `tool_choice.function` for a choice written so, `modalities.audio`
and `echo.true` for that value, and `logprobs.number` for a number of words, as completions of text ask for.
"""


class _Line(msgspec.Struct):
    body: dict[str, msgspec.Raw]


class _Message(msgspec.Struct):
    role: str = ""
    content: msgspec.Raw = msgspec.Raw()
    tool_calls: msgspec.Raw = msgspec.Raw()
    function_call: msgspec.Raw = msgspec.Raw()
    tools: msgspec.Raw = msgspec.Raw()


class _Typed(msgspec.Struct):
    type: str


_read_line = msgspec.json.Decoder(_Line).decode
_read_body = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_read_messages = msgspec.json.Decoder(list[_Message]).decode
_read_typed = msgspec.json.Decoder(list[_Typed]).decode
_read_texts = msgspec.json.Decoder(list[str]).decode
_read_choice = msgspec.json.Decoder(str | _Typed).decode

_NOTHING = (b"", b"null", b"[]")


def first_lacking(line: bytes, lacks: Lacks) -> tuple[str, str] | None:
    """What a line, checked before, holds that such a route cannot carry: where in its body, and what of `lacks` it is.

    A field that is null, or a list without entries, asks for nothing.
    """
    return _first_lacking(_read_line(line).body, lacks)


def tell_lacking(where: str, name: str, model: str) -> str:
    """What is said of a field, or of what it holds, that `first_lacking` found for a model."""
    what = "is a field that" if where == name else f"holds {name.partition('.')[2]!r}, which"
    return f"{where!r} {what} {model} cannot use: the server of that model would fail on it or leave it out."


def first_lacking_of_body(body: bytes, lacks: Lacks) -> tuple[str, str] | None:
    """The same of a body by itself."""
    return _first_lacking(_read_body(body), lacks)


def _first_lacking(body: dict[str, msgspec.Raw], lacks: Lacks) -> tuple[str, str] | None:
    for name, raw in body.items():
        if bytes(raw) in _NOTHING:
            continue
        if name in lacks:
            return name, name
        find = _INSIDE.get(name)
        found = find(raw, lacks) if find is not None else None
        if found is not None:
            return found
    return None


def _in_messages(raw: msgspec.Raw, lacks: Lacks) -> tuple[str, str] | None:
    for number, message in enumerate(_read_messages(raw)):
        found = _in_message(message, lacks)
        if found is not None:
            return f"messages[{number}]{found[0]}", found[1]
    return None


def _in_message(message: _Message, lacks: Lacks) -> tuple[str, str] | None:
    if f"messages.{message.role}" in lacks:
        return "", f"messages.{message.role}"
    if bytes(message.content).startswith(b"["):
        for at, part in enumerate(_read_typed(message.content)):
            if f"messages.{part.type}" in lacks:
                return f".content[{at}]", f"messages.{part.type}"
    for name in _OF_TOOLS:
        if f"messages.{name}" in lacks and bytes(getattr(message, name)) not in _NOTHING:
            return f".{name}", f"messages.{name}"
    if "messages.custom" in lacks and bytes(message.tool_calls) not in _NOTHING:
        for at, call in enumerate(_read_typed(message.tool_calls)):
            if call.type == "custom":
                return f".tool_calls[{at}]", "messages.custom"
    return None


_OF_TOOLS = ("tool_calls", "function_call", "tools")


def _in_tools(raw: msgspec.Raw, lacks: Lacks) -> tuple[str, str] | None:
    for number, tool in enumerate(_read_typed(raw)):
        if f"tools.{tool.type}" in lacks:
            return f"tools[{number}]", f"tools.{tool.type}"
    return None


def _in_modalities(raw: msgspec.Raw, lacks: Lacks) -> tuple[str, str] | None:
    for number, value in enumerate(_read_texts(raw)):
        if f"modalities.{value}" in lacks:
            return f"modalities[{number}]", f"modalities.{value}"
    return None


def _in_tool_choice(raw: msgspec.Raw, lacks: Lacks) -> tuple[str, str] | None:
    choice = _read_choice(raw)
    name = f"tool_choice.{choice if isinstance(choice, str) else choice.type}"
    return ("tool_choice", name) if name in lacks else None


def _in_echo(raw: msgspec.Raw, lacks: Lacks) -> tuple[str, str] | None:
    return ("echo", "echo.true") if bytes(raw) == b"true" and "echo.true" in lacks else None


def _in_logprobs(raw: msgspec.Raw, lacks: Lacks) -> tuple[str, str] | None:
    is_number = bytes(raw) not in (b"true", b"false")
    return ("logprobs", "logprobs.number") if is_number and "logprobs.number" in lacks else None


_INSIDE = {
    "messages": _in_messages,
    "tools": _in_tools,
    "tool_choice": _in_tool_choice,
    "modalities": _in_modalities,
    "echo": _in_echo,
    "logprobs": _in_logprobs,
}

FORMS = frozenset(_INSIDE)
"""Fields of which a server may lack some forms only."""
