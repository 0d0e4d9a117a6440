"""The messages of a chat: who may say what, in which parts."""

from __future__ import annotations

from overnight.domain.bodies.kinds import (
    Kind,
    anything,
    array,
    boolean,
    choice,
    either,
    nullable,
    own_object,
    text,
)
from overnight.domain.bodies.records import record, tagged
from overnight.domain.bodies.tools import FUNCTION_CALL, FUNCTION_TOOL, MOST_TOOLS, TOOL_CALLS

MOST_MESSAGES = 2_048
MOST_PARTS = 2_048
"""Of one message."""

_BREAKPOINT = record({"mode": choice("explicit"), "ttl": choice("30m", "12h")}, needs=("mode",))


def _part(type_: str, **fields: Kind) -> Kind:
    """A part that needs its type and the first of these fields."""
    needed = next(iter(fields))
    return record({"type": choice(type_), **fields}, needs=("type", needed))


# `uuid` names a medium that vLLM has seen before, which may then be null.
_MEDIUM = nullable(record({"url": text(shortest=1)}, needs=("url",)))
_TEXT = _part("text", text=text(), prompt_cache_breakpoint=_BREAKPOINT)
_REFUSAL = _part("refusal", refusal=text())
_THINKING = _part("thinking", thinking=text(), closed=boolean())
_IMAGE = _part(
    "image_url",
    image_url=nullable(
        record({"url": text(shortest=1), "detail": choice("auto", "low", "high", "original")}, needs=("url",))
    ),
    prompt_cache_breakpoint=_BREAKPOINT,
    uuid=nullable(text()),
)
_AUDIO = _part(
    "input_audio",
    input_audio=nullable(record({"data": text(), "format": choice("wav", "mp3")}, needs=("data", "format"))),
    prompt_cache_breakpoint=_BREAKPOINT,
    uuid=nullable(text()),
)
_FILE = _part(
    "file",
    file=record({"file_data": text(), "file_id": text(), "filename": text()}),
    prompt_cache_breakpoint=_BREAKPOINT,
)
_INPUT_PARTS = {
    "text": _TEXT,
    "image_url": _IMAGE,
    "input_audio": _AUDIO,
    "file": _FILE,
    "audio_url": _part("audio_url", audio_url=_MEDIUM, uuid=nullable(text())),
    "video_url": _part("video_url", video_url=_MEDIUM, uuid=nullable(text())),
    "image_embeds": _part("image_embeds", image_embeds=nullable(either(text(), own_object())), uuid=nullable(text())),
}


def _content(parts: dict[str, Kind]) -> Kind:
    return either(text(), array(tagged("type", parts), fewest=1, most=MOST_PARTS))


TEXT_CONTENT = _content({"text": _TEXT})
_INPUT = _content(_INPUT_PARTS)


def _message(role: str, needs: tuple[str, ...], fields: dict[str, Kind], one_of: tuple[str, ...] = ()) -> Kind:
    return record({"role": choice(role)} | fields, needs=("role", *needs), one_of=one_of)


_INSTRUCTION = {
    "content": TEXT_CONTENT,
    "name": nullable(text()),
    "tools": nullable(array(FUNCTION_TOOL, most=MOST_TOOLS)),
}

# An answer may be sent back as it came, so what servers add to theirs is known here.
_ANSWER = {
    "content": nullable(_content({"text": _TEXT, "refusal": _REFUSAL, "thinking": _THINKING})),
    "name": nullable(text()),
    "refusal": nullable(text()),
    "audio": nullable(own_object()),
    "annotations": nullable(array(own_object())),
    "function_call": nullable(FUNCTION_CALL),
    "tool_calls": nullable(TOOL_CALLS),
    "reasoning": nullable(text()),
    "reasoning_content": nullable(text()),
    "reasoning_details": nullable(array(anything())),
    "prefix": nullable(boolean()),
}
_SAID = ("content", "tool_calls", "function_call", "refusal", "audio")
_TOOL = {"content": _INPUT, "tool_call_id": text(), "name": nullable(text())}

MESSAGES = array(
    tagged(
        "role",
        {
            "system": _message("system", ("content",), _INSTRUCTION),
            "developer": _message("developer", ("content",), _INSTRUCTION),
            "user": _message("user", ("content",), {"content": _INPUT, "name": nullable(text())}),
            "assistant": _message("assistant", (), _ANSWER, one_of=_SAID),
            "tool": _message("tool", ("content", "tool_call_id"), _TOOL),
            "function": _message("function", ("content", "name"), {"content": nullable(text()), "name": text()}),
        },
    ),
    fewest=1,
    most=MOST_MESSAGES,
)
