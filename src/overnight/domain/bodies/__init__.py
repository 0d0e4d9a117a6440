"""What the bodies of requests may hold, target by target: a table of fields each, and what follows from it.

A field is forwarded as it was written or refused by name; so a table knows the documented fields of OpenAI's API and
the common ones of vLLM and llama.cpp. Whether a model or a server supports a field is theirs to say.
"""

from __future__ import annotations

from overnight.domain.bodies.carry import FORMS
from overnight.domain.bodies.chat import CHAT, INTERACTIVE_CHAT
from overnight.domain.bodies.completions import COMPLETION, INTERACTIVE_COMPLETION
from overnight.domain.bodies.embeddings import EMBEDDING
from overnight.domain.bodies.kinds import Kind, Wrong

__all__ = ["BODIES", "INTERACTIVE_BODIES", "Kind", "Wrong", "is_field"]

BODIES: dict[str, Kind] = {
    "/v1/chat/completions": CHAT,
    "/v1/completions": COMPLETION,
    "/v1/embeddings": EMBEDDING,
}
"""By the url of a line."""

INTERACTIVE_BODIES: dict[str, Kind] = {
    "/v1/chat/completions": INTERACTIVE_CHAT,
    "/v1/completions": INTERACTIVE_COMPLETION,
    "/v1/embeddings": EMBEDDING,
}
"""The same of interactive requests, which may ask for a stream."""


def is_field(name: str) -> bool:
    """Whether a name means something that a server may lack: a field of some body, or a form as in `carry.Lacks`."""
    place, _, form = name.partition(".")
    return any(name in kind.schema["properties"] for kind in BODIES.values()) or bool(form and place in FORMS)
