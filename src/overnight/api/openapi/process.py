"""What is said of models, the process itself, and the documents that describe it."""

from __future__ import annotations

from overnight.api.openapi.shared import shows
from overnight.api.openapi.terms import JSON, Operation, answer, parameter, ref, text
from overnight.domain.errors import ModelNotFound, NotFound
from overnight.domain.line_schemas import LINE_SCHEMAS

_HEALTH = {
    200: answer("It can do its work.", {JSON: ref("Healthy")}),
    503: answer(
        "It cannot now, and says why; or the database cannot be reached.",
        {JSON: {"anyOf": [ref("Unhealthy"), ref("Error")]}},
    ),
}

OPERATIONS: dict[str, Operation] = {
    "list_models": Operation("models", shows("ModelList", "All of them, by id.")),
    "show_model": Operation(
        "models",
        shows("Model", "The model."),
        (ModelNotFound, NotFound),
        parameters=(
            parameter(
                "model_id", text(minLength=1), "Its id or an alias; ids may hold slashes, written as such.", "path"
            ),
        ),
    ),
    "show_pool": Operation("process", shows("PoolStatus", "Over all processes.")),
    "show_health": Operation("process", _HEALTH, is_open=True),
    "show_metrics": Operation(
        "process", {200: answer("In the text format of Prometheus.", {"text/plain": text()})}, is_open=True
    ),
    "show_schema": Operation(
        "documents",
        {200: answer("A JSON Schema (2020-12).", {"application/schema+json": {"type": "object"}})},
        (NotFound,),
        parameters=(parameter("name", text(examples=list(LINE_SCHEMAS)), "Its name.", "path"),),
        is_open=True,
    ),
    "show_document": Operation("documents", {200: answer("This document.", {JSON: {"type": "object"}})}, is_open=True),
}
