"""What a server answers to the question which models it serves, whatever shape it gives that."""

from __future__ import annotations

from typing import Any, TypeGuard

import msgspec

from overnight.domain.targets import TARGETS
from overnight.store.served import Offer
from overnight.upstreams.http import Pool, Reply

MOST_MODELS = 10_000
LONGEST_NAME = 512

_TARGETS = tuple(target.name for target in TARGETS.values())
_MAY_PASS = frozenset({408, 425, 429, 500, 502, 503, 504})
_CONTEXT = ("max_model_len", "context_length", "context_window", "max_context_length", "n_ctx", "n_ctx_train")
"""Where servers say how many tokens a model takes: vLLM, routers, Groq, LM Studio, llama.cpp."""


async def ask_for_models(pool: Pool) -> tuple[Offer, ...] | None:
    """Ask a server for its models by `GET /models`.

    Empty: it does not say. None: it could not be asked, or is not well, and may answer later.
    """
    came = await pool.ask("GET", "/models")
    if not isinstance(came, Reply) or came.status in _MAY_PASS:
        return None
    return read_listing(came.body) if came.status == 200 else ()


def read_listing(body: bytes) -> tuple[Offer, ...]:
    """The models of a listing in OpenAI's form, ordered by id: `{"data": [{"id": …}]}`; what is odd is left out."""
    try:
        listing = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ()
    entries = listing.get("data") if isinstance(listing, dict) else listing
    if not isinstance(entries, list):
        return ()
    found: dict[str, Offer] = {}
    for entry in entries[:MOST_MODELS]:
        name = entry.get("id") if isinstance(entry, dict) else entry
        if _is_name(name):
            found.setdefault(name, _offer(name, entry if isinstance(entry, dict) else {}))
    return tuple(found[name] for name in sorted(found))


def _is_name(name: object) -> TypeGuard[str]:
    return isinstance(name, str) and 0 < len(name) <= LONGEST_NAME and name.isprintable()


def _offer(name: str, entry: dict[str, Any]) -> Offer:
    aliases = entry.get("aliases")
    meta = entry.get("meta")
    places = [entry, meta] if isinstance(meta, dict) else [entry]
    lengths = (place.get(field) for place in places for field in _CONTEXT)
    return Offer(
        model=name,
        aliases=tuple(a for a in aliases if _is_name(a) and a != name)[:100] if isinstance(aliases, list) else (),
        context_length=next((n for n in lengths if type(n) is int and 0 < n < 2**31), None),
        targets=_TARGETS,
    )
