"""The batch and its results as answers show them, and the two forms of the call that creates one."""

from __future__ import annotations

from overnight.api.openapi.objects import page_of
from overnight.api.openapi.terms import (
    Schema,
    always,
    array,
    asked,
    moment,
    nullable,
    number,
    one_of,
    public_id,
    record,
    ref,
    text,
    whole,
)
from overnight.batches import request
from overnight.domain import direct, ids, waiting
from overnight.domain.bodies import BODIES
from overnight.domain.codes import ANSWERS
from overnight.domain.fields import KEPT_SECONDS
from overnight.domain.limits import LONGEST_CUSTOM_ID, MOST_PROBLEMS
from overnight.domain.line_schemas import LINE_SCHEMAS
from overnight.domain.request_states import RequestStatus
from overnight.domain.states import Status
from overnight.domain.targets import TARGETS

BODY_NAMES = {url: f"{target.name.capitalize()}Body" for url, target in TARGETS.items()}
"""Component that describes the body of a request, by its url."""

_NO_ZERO = "^[^\\u0000]*$"
_DEFAULTS = {
    "max_decoding_length": whole("The most tokens of an answer.", 1, request.LARGEST),
    "max_context_length": whole(
        "The most tokens of a prompt and its answer together, where a local engine runs them; elsewhere of a prompt, "
        "and of an answer without a limit of its own.",
        1,
        request.LARGEST,
    ),
    "temperature": number(most=request.FRACTIONS["temperature"]),
    "top_p": number(most=request.FRACTIONS["top_p"]),
    "top_k": whole(least=0, most=request.LARGEST),
}
"""What holds for the requests of a batch whose bodies don't say otherwise."""

_METADATA = {
    "type": "object",
    "description": "Pairs of the caller's own.",
    "maxProperties": request.MOST_METADATA,
    "propertyNames": {"maxLength": request.LONGEST_METADATA_KEY, "pattern": _NO_ZERO},
    "additionalProperties": text(maxLength=request.LONGEST_METADATA_VALUE, pattern=_NO_ZERO),
}

_USAGE = record(
    {
        "input_tokens": whole(),
        "input_tokens_details": record({"cached_tokens": whole()}),
        "output_tokens": whole(),
        "output_tokens_details": record({"reasoning_tokens": whole()}),
        "total_tokens": whole(),
    },
    "Tokens of all requests that were answered.",
)

_PROGRESS = record(
    {
        "waiting": whole("Requests that have no answer and don't run."),
        "running": whole("Requests that may be running, at the most."),
        "per_minute": nullable(
            number("Answers a minute so far, pauses left out; null before the first request could start.")
        ),
        "estimated_finish_at": nullable(moment("When it will be done if it goes on like this.")),
        "ahead": whole("Requests of older batches that start first."),
        "waiting_for": nullable(
            one_of(
                waiting.SAYS,
                "Why nothing of it can start now; null where something can. "
                + " ".join(f"`{cause}`: {says}." for cause, says in waiting.SAYS.items()),
            )
        ),
    },
    "How far a batch is; null where it has ended.",
)

_PAUSED = record(
    {"reason": text(), "by": nullable(text()), "until": nullable(whole())},
    "Why nothing of the batch starts; null where it is not paused.",
)

_MOMENTS = {
    "in_progress_at": "When its requests could start.",
    "expires_at": "When its window closes: nothing of it starts later.",
    "finalizing_at": "When nothing was left to run.",
    "completed_at": "When it was completed.",
    "failed_at": "When it failed.",
    "expired_at": "When it had expired.",
    "cancelling_at": "When it was asked to stop.",
    "cancelled_at": "When it had stopped.",
    "results_expires_at": "When it will be deleted with its results.",
}

_BATCH = record(
    {
        "id": public_id(ids.BATCH),
        "object": always("batch"),
        "endpoint": one_of(TARGETS),
        "model": nullable(text("The model that runs it, where it is one and known.")),
        "errors": nullable(
            record(
                {"object": always("list"), "data": array(ref("Problem"), maxItems=MOST_PROBLEMS)},
                "Why its input was refused.",
            )
        ),
        "input_file_id": nullable(public_id(ids.FILE, "Null for requests that came in the call itself.")),
        "completion_window": text(pattern="^([0-9]+h|none)$"),
        "status": one_of(Status),
        "output_file_id": nullable(public_id(ids.FILE, "The responses, once it has ended and there are any.")),
        "error_file_id": nullable(public_id(ids.FILE, "The errors, once it has ended and there are any.")),
        "created_at": moment("When it was made."),
        **{name: nullable(moment(says)) for name, says in _MOMENTS.items()},
        "request_counts": record({"total": whole(), "completed": whole(), "failed": whole()}),
        "usage": _USAGE,
        "metadata": _METADATA,
        "anthropic_version": {"type": "null"},
        "cost_usd": number("Of the attempts whose cost is known."),
        "cost_unknown_attempts": whole(),
        "error": nullable(
            record(
                {"code": text(), "message": text()},
                "Why the whole batch failed, or what its closing window left unanswered.",
            )
        ),
        **{name: nullable(schema) for name, schema in _DEFAULTS.items()},
        "paused": nullable(_PAUSED),
        "progress": nullable(_PROGRESS),
        "retry_of": nullable(public_id(ids.BATCH, "The batch whose unfinished requests these are.")),
    },
    "A batch at one moment.",
)

_COMMON: dict[str, Schema] = {
    "completion_window": nullable(
        text(
            "How long requests may start. `24h` is what the operator has set; `none` only where windows are lifted.",
            pattern=f"^({request.WINDOW.pattern}|none)$",
        )
    ),
    "metadata": nullable(_METADATA),
    "output_expires_after": nullable(
        asked(
            {"anchor": always("created_at"), "seconds": whole("", KEPT_SECONDS[0], KEPT_SECONDS[-1])},
            needs=("anchor", "seconds"),
            says="How long result files are kept at least.",
        )
    ),
    **{name: nullable(schema) for name, schema in _DEFAULTS.items()},
}

_NO_VALUE: Schema = {"type": "null"}

_FROM_FILE = asked(
    {
        "input_file_id": text("A file of purpose `batch`."),
        "endpoint": one_of(TARGETS, "What the requests are for; the `url` of every line."),
        **_COMMON,
        "requests": _NO_VALUE,
    },
    needs=("input_file_id", "endpoint"),
    says="A batch of the requests of a file.",
)

_DIRECT = asked(
    {
        "requests": array(ref("DirectRequest"), "The requests themselves.", minItems=1),
        "endpoint": nullable(one_of(TARGETS, "By default the `url` of the first request.")),
        **_COMMON,
        "input_file_id": _NO_VALUE,
    },
    needs=("requests",),
    says="A batch of requests that come in the call.",
)


def _direct_request(url: str) -> Schema:
    fields = {
        "custom_id": text("Names the request in its batch.", minLength=1, maxLength=LONGEST_CUSTOM_ID),
        "method": always(direct.METHOD),
        "url": always(url),
        "body": ref(BODY_NAMES[url]),
    }
    return asked(fields, needs=("custom_id", "body") if url == direct.URL else ("custom_id", "url", "body"))


def _result() -> Schema:
    line = LINE_SCHEMAS["batch-output-line.json"]
    fields = {
        **line["properties"],
        "status": one_of(RequestStatus),
        "attempts": whole("Tries so far, one that runs included."),
    }
    return record(fields, "What became of one request so far.")


BATCH_OBJECTS: dict[str, Schema] = {
    "Batch": _BATCH,
    "BatchPage": page_of("Batch", "batches"),
    "Result": _result(),
    "ResultPage": page_of("Result", "results"),
    "ResultLine": {name: part for name, part in LINE_SCHEMAS["batch-output-line.json"].items() if name != "$schema"}
    | {"x-error-codes": ANSWERS},
    "NewBatchFromFile": _FROM_FILE,
    "NewBatchOfRequests": _DIRECT,
    "DirectRequest": {"oneOf": [_direct_request(url) for url in TARGETS]},
    **{BODY_NAMES[url]: kind.schema for url, kind in BODIES.items()},
}
