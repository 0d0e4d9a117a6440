"""The endpoints that a batch's requests may be for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Target:
    """One endpoint: its address as users write it, its path below a server's base URL, and what a body needs."""

    name: str
    url: str
    path: str
    needs: str
    """The field of the body that carries the input."""


TARGETS: dict[str, Target] = {
    t.url: t
    for t in (
        Target("chat", "/v1/chat/completions", "/chat/completions", "messages"),
        Target("completions", "/v1/completions", "/completions", "prompt"),
        Target("embeddings", "/v1/embeddings", "/embeddings", "input"),
    )
}
"""By address. Responses and Messages join when their bodies can be run."""

ENDPOINTS = ", ".join(TARGETS)
