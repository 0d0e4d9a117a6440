"""What an error reply says, in any of the shapes that model servers use."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import cast

_LONGEST_MESSAGE = 1_000
_CONTEXT_NAMES = frozenset(
    {"context_length_exceeded", "exceed_context_size_error", "context_window_exceeded", "model_context_window_exceeded"}
)
_STATUS_OF = {
    "invalid_request_error": 400,
    "badrequesterror": 400,
    "authentication_error": 401,
    "permission_error": 403,
    "not_found_error": 404,
    "notfounderror": 404,
    "model_not_found": 404,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "insufficient_quota": 429,
    "overloaded_error": 503,
    "unavailable_error": 503,
    "model_queued": 503,
    "timeout_error": 504,
}
_NUMBER = r"(\d[\d,]{0,14})"
# The context of the model, in the words of OpenAI and vLLM; vLLM's scheduler; SGLang and Together; llama.cpp; xAI;
# Anthropic; Gemini; llama.cpp's embeddings, whose batch is their context.
_CONTEXT = [
    re.compile(pattern.replace("#", _NUMBER), re.IGNORECASE)
    for pattern in (
        r"maximum context length (?:is|of) #",
        r"maximum model length of #",
        r"longer than the model's context length \(#",
        r"available context size \(#",
        r"maximum prompt length is #",
        r"prompt is too long: \d+ tokens > #",
        r"exceeds the maximum number of tokens allowed \(#",
        r"too large for model with # maximum context",
        r"too large to process\.? increase the physical batch size \(current batch size: #",
    )
]
_LEAST = re.compile(r"prompt (?:contains|has) at least \d", re.IGNORECASE)
# The length of the prompt, the surest words first.
_PROMPT = [
    re.compile(pattern.replace("#", _NUMBER), re.IGNORECASE)
    for pattern in (
        r"# (?:tokens )?(?:in|from) (?:the|your) (?:input )?(?:messages|prompt|input)",
        r"(?:prompt|request) (?:contains|has) (?:at least )?# (?:input )?tokens",
        r"prompt \(length #",
        r"(?:input|request) \(# tokens\)",
        r"prompt is too long: # tokens",
        r"input token count \(#\)",
        r"messages resulted in #",
        r"requested (?:a total of )?# tokens",
    )
]


@dataclass(frozen=True, slots=True)
class Complaint:
    """An error reply, read. `names` are its code and type as far as they are text, in lower case.

    `status` is the one it names itself; `prompt` and `context` are lengths in tokens where it gives them.
    """

    message: str = ""
    names: frozenset[str] = frozenset()
    status: int | None = None
    prompt: int | None = None
    context: int | None = None
    is_least: bool = False
    """The prompt is at least so long: the server stopped counting."""

    @property
    def is_about_context(self) -> bool:
        """Whether the prompt, alone or with the output asked for, was too long for the model."""
        return self.context is not None or not self.names.isdisjoint(_CONTEXT_NAMES)


def find_error(body: object) -> object | None:
    """The error that a decoded 2xx reply carries instead of an answer, None where it is an answer.

    `{"error": {…}}` (OpenAI, Anthropic, llama.cpp), `{"object": "error", …}` (vLLM), and a bare text under `error`
    where nothing else looks like an answer.
    """
    if type(body) is not dict:
        return None
    fields: dict[str, object] = body
    error = fields.get("error")
    if isinstance(error, dict) and error:
        return fields
    if fields.get("object") == "error" or fields.get("type") == "error":
        return fields
    if isinstance(error, str) and error and not fields.keys() & {"choices", "data", "output", "content"}:
        return fields
    return None


def read_complaint(body: object) -> Complaint:
    """Read a decoded error reply; whatever it is, what cannot be read is left out."""
    if isinstance(body, list) and len(body) == 1:
        body = body[0]
    if isinstance(body, str):
        return _with_lengths(Complaint(body[:_LONGEST_MESSAGE]), {})
    if not isinstance(body, dict):
        return Complaint()
    outer = cast("dict[str, object]", body)
    error = outer.get("error")
    fields = cast("dict[str, object]", error) if isinstance(error, dict) else outer
    texts = (fields.get("message"), fields.get("detail"), error, outer.get("message"), outer.get("detail"))
    message = next((text for text in texts if isinstance(text, str) and text.strip()), "") or _first_detail(outer)
    named = [fields.get("code"), fields.get("type"), outer.get("code")]
    names = frozenset(name.lower() for name in named if isinstance(name, str))
    complaint = Complaint(message.strip()[:_LONGEST_MESSAGE], names, _read_status(fields, outer, names))
    return _with_lengths(complaint, fields)


def _first_detail(body: dict[str, object]) -> str:
    """What FastAPI says of a request it cannot validate: a list of findings under `detail`."""
    detail = body.get("detail")
    first = detail[0] if isinstance(detail, list) and detail else None
    told = first.get("msg") if isinstance(first, dict) else None
    return told if isinstance(told, str) else ""


def _read_status(fields: dict[str, object], outer: dict[str, object], names: frozenset[str]) -> int | None:
    for place in (fields, outer):
        for name in ("code", "status", "status_code"):
            value = place.get(name)
            if isinstance(value, str) and len(value) == 3 and value.isascii() and value.isdigit():
                value = int(value)
            if isinstance(value, int) and 400 <= value <= 599:
                return value
    return min((_STATUS_OF[name] for name in names if name in _STATUS_OF), default=None)


def _with_lengths(complaint: Complaint, fields: dict[str, object]) -> Complaint:
    prompt, context = fields.get("n_prompt_tokens"), fields.get("n_ctx")
    if not (isinstance(prompt, int) and isinstance(context, int)):
        prompt, context = _search(_PROMPT, complaint.message), _search(_CONTEXT, complaint.message)
    if context is None:
        return complaint
    is_least = _LEAST.search(complaint.message) is not None
    return Complaint(complaint.message, complaint.names, complaint.status, prompt, context, is_least)


def _search(patterns: list[re.Pattern[str]], text: str) -> int | None:
    for pattern in patterns:
        found = pattern.search(text)
        if found is not None:
            return int(found[1].replace(",", ""))
    return None
