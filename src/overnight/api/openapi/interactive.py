"""What is said of the calls that are passed on to a model."""

from __future__ import annotations

from typing import Any

from overnight.api.openapi.terms import JSON, Operation, Schema, answer, ref
from overnight.domain.bodies import INTERACTIVE_BODIES
from overnight.domain.targets import TARGETS

STREAM = "text/event-stream"

_NAMES = {url: f"Interactive{target.name.capitalize()}Body" for url, target in TARGETS.items()}

INTERACTIVE_OBJECTS: dict[str, Schema] = {_NAMES[url]: kind.schema for url, kind in INTERACTIVE_BODIES.items()}

_HEADERS = {"retry-after": ref("RetryAfter", "headers"), "x-should-retry": ref("ShouldRetry", "headers")}


def _error(says: str) -> Schema:
    return answer(says, {JSON: ref("Error")}, _HEADERS)


_REFUSED: dict[int | str, Schema] = {
    403: _error("The call was made by a web page, or the model server refused it."),
    404: _error("`model_not_found`: no server that is connected serves the model, or it does not answer to this path."),
    500: _error("A fault of Overnight (`internal_error`), or of the model server."),
    503: _error("The server of the model is loading, down, or reached by another process only."),
    "4XX": _error("Refused before anything is sent; or by the model server: its own status, and what it said."),
    "5XX": _error("The model server failed (502 where it broke off or sent no HTTP), or took too long (504)."),
}

_SAYS = (
    "The body is checked like a request of a batch and passed on as it was written; so is the reply, as it comes. "
    "Before the first byte, other servers of the model are tried where one cannot be reached or has too much to do. "
    "When the caller goes away, the model server is told to stop. Batches of the same model give way meanwhile."
)


def _passed_on(url: str, example: dict[str, Any], *, streams: bool = True) -> Operation:
    bodies: dict[str, Schema] = {JSON: {}}
    if streams:
        bodies[STREAM] = {"description": "Events, the last one `[DONE]`; one with `error` where the server broke off."}
    good: dict[int | str, Schema] = {200: answer("What the model server replies.", bodies)}
    return Operation("interactive", good | _REFUSED, body={JSON: ref(_NAMES[url])}, example=example, says=_SAYS)


OPERATIONS: dict[str, Operation] = {
    "complete_chat": _passed_on(
        "/v1/chat/completions", {"model": "a-model", "messages": [{"role": "user", "content": "Hello"}], "stream": True}
    ),
    "complete_text": _passed_on("/v1/completions", {"model": "a-model", "prompt": "Once upon a time"}),
    "embed": _passed_on("/v1/embeddings", {"model": "a-model", "input": "A text"}, streams=False),
}
