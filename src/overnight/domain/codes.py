"""The codes of what is wrong with an input, and of how single requests fail, with what each means."""

from __future__ import annotations

PROBLEMS: dict[str, str] = {
    "invalid_json_line": "The line is not a strict JSON object.",
    "invalid_utf8": "The line is not valid UTF-8.",
    "missing_required_parameter": "The line or its body lacks a field that is required.",
    "invalid_parameter": "A field has a value that is not allowed, or is not known.",
    "duplicate_custom_id": "Another line of the file has the same `custom_id`.",
    "invalid_method": "`method` is not `POST`.",
    "invalid_url": "`url` is not one of the endpoints that batches run.",
    "mismatched_endpoint": "`url` differs from the batch's `endpoint`.",
    "mismatched_model": "The line names another model than the lines before it.",
    "model_not_found": "No server that is connected serves the model.",
    "auto_model_not_allowed": "`auto` models cannot be used in batches; name a model.",
    "streaming_not_supported": "`stream` is true; results of a batch are not streamed.",
    "line_too_long": "The line is longer than the limit.",
    "empty_file": "The file holds no request.",
    "too_many_requests": "The batch holds more requests than one batch may.",
    "batch_route_unavailable": "The model has no route that batches may use.",
    "file_not_found": "The input file was deleted or expired before it was read.",
}
"""Code of a batch's `errors` entry → what it means."""

ANSWERS: dict[str, str] = {
    "invalid_request": "The model server rejected the request (400, 422).",
    "context_length_exceeded": "The prompt is longer than the model's context; the message has both numbers.",
    "model_not_found": "The model is gone from its server (404).",
    "forbidden": "The model server refused (401, 403).",
    "rate_limited": "Still rate-limited after the last try (429).",
    "timeout": "Ran out of time; not tried again.",
    "service_unavailable": "No server could take it before the last try (503).",
    "upstream_error": "Another error of the server, or a reply that was no valid JSON.",
    "result_too_large": "The reply was larger than one request may store, or its batch has no room left for responses.",
    "batch_failed": "Not run: the batch failed.",
    "batch_expired": "Not run before the window closed.",
    "batch_cancelled": "Not run: the batch was cancelled.",
}
"""Code of a request's error → what it means."""
