"""What of a body a route cannot carry: fields and forms that its server would drop, or fail on."""

from __future__ import annotations

import msgspec

Lacks = frozenset[str]
"""Names of fields; besides, `messages.image_url` stands for content parts of that type, `tools.custom` for tools, and
`modalities.audio` for that value."""


class _Line(msgspec.Struct):
    body: dict[str, msgspec.Raw]


class _Message(msgspec.Struct):
    content: msgspec.Raw = msgspec.Raw()


class _Typed(msgspec.Struct):
    type: str


_read_line = msgspec.json.Decoder(_Line).decode
_read_body = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_read_messages = msgspec.json.Decoder(list[_Message]).decode
_read_typed = msgspec.json.Decoder(list[_Typed]).decode
_read_texts = msgspec.json.Decoder(list[str]).decode


def first_lacking(line: bytes, lacks: Lacks) -> tuple[str, str] | None:
    """What a line, checked before, holds that such a route cannot carry: where in its body, and what of `lacks` it is.

    A field that is null asks for nothing.
    """
    return _first_lacking(_read_line(line).body, lacks)


def first_lacking_of_body(body: bytes, lacks: Lacks) -> tuple[str, str] | None:
    """The same of a body by itself."""
    return _first_lacking(_read_body(body), lacks)


def _first_lacking(body: dict[str, msgspec.Raw], lacks: Lacks) -> tuple[str, str] | None:
    for name, raw in body.items():
        if bytes(raw) == b"null":
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
        if not bytes(message.content).startswith(b"["):
            continue
        for at, part in enumerate(_read_typed(message.content)):
            if f"messages.{part.type}" in lacks:
                return f"messages[{number}].content[{at}]", f"messages.{part.type}"
    return None


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


_INSIDE = {"messages": _in_messages, "tools": _in_tools, "modalities": _in_modalities}

FORMS = frozenset(_INSIDE)
"""Fields of which a server may lack some forms only."""
