"""Joins what is said of every operation to the document, along the routes that the app really has."""

from __future__ import annotations

import re
from collections.abc import Iterable

from litestar.enums import HttpMethod
from litestar.handlers import HTTPRouteHandler

from overnight import __version__
from overnight.api.openapi import batches, files, interactive, process, shared
from overnight.api.openapi.batch_objects import BATCH_OBJECTS
from overnight.api.openapi.objects import OBJECTS
from overnight.api.openapi.terms import Operation, Schema, show

OPERATIONS: dict[str, Operation] = files.OPERATIONS | batches.OPERATIONS | interactive.OPERATIONS | process.OPERATIONS
"""By the name of the handler."""

TAGS = {
    "files": "Inputs and results as files.",
    "uploads": "Large files, sent in parts.",
    "batches": "Many requests handed over in one call.",
    "results": "What became of each request, at any time.",
    "interactive": "One request now, passed on to its model.",
    "models": "What requests may name.",
    "process": "How this process and the whole deployment are doing.",
    "documents": "What describes all this to programs.",
}

_SAYS = """\
Batch inference on your own models, in the shape of OpenAI's Batch API, and single requests beside it.

Every error has the shape `Error`, also those of unknown addresses (404) and methods (405, whose `Allow` header lists
what the address answers to, as `OPTIONS` does). Every answer carries `x-request-id`. A refusal that may pass carries
`Retry-After`; one that stays carries `x-should-retry: false` where client libraries would otherwise try again.
In local mode no key is asked for, and whatever key is sent is ignored."""

_KEYS = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "As OpenAI's clients send a key; it comes first."},
    "key": {"type": "apiKey", "in": "header", "name": "x-api-key", "description": "As Anthropic's clients send it."},
}


def document(handlers: Iterable[HTTPRouteHandler]) -> Schema:
    """The OpenAPI 3.1 document of an app with these handlers. Raises KeyError for one that nothing is said of."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Overnight",
            "version": __version__,
            "description": _SAYS,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "security": [{}, {"bearer": []}, {"key": []}],
        "tags": [{"name": name, "description": says} for name, says in TAGS.items()],
        "paths": _paths(handlers),
        "components": {
            "schemas": OBJECTS | BATCH_OBJECTS | interactive.INTERACTIVE_OBJECTS,
            "responses": shared.RESPONSES,
            "parameters": shared.PARAMETERS,
            "headers": shared.HEADERS,
            "securitySchemes": _KEYS,
        },
    }


def _paths(handlers: Iterable[HTTPRouteHandler]) -> Schema:
    paths: dict[str, Schema] = {}
    for handler in handlers:
        name = handler.fn.__name__
        summary = (handler.fn.__doc__ or "").partition("\n")[0]
        for path in sorted(handler.paths):
            shown = paths.setdefault(re.sub(r":[a-z]+}", "}", path), {})
            for method in sorted(HttpMethod(method).value.lower() for method in handler.http_methods):
                is_head = method == "head"
                of_method = f"{name}_head" if is_head else name
                shown[method] = show(OPERATIONS[name], of_method, summary, has_body=not is_head)
    return paths
