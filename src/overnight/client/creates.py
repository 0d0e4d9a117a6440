"""The calls that make batches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from overnight.client.asking import Asking, Json

CHAT = "/v1/chat/completions"


class Creates(Asking):
    """Making batches, of files and of requests at hand.

    With an `idempotency_key`, a name of your own for the call, a create can be made again without making a second
    batch: it is then tried again, as calls that only read are, where the server is away for half a minute.
    """

    async def create_batch(
        self,
        input_file_id: str,
        endpoint: str = CHAT,
        completion_window: str = "24h",
        metadata: Mapping[str, str] | None = None,
        max_decoding_length: int | None = None,
        max_context_length: int | None = None,
        temperature: float | None = None,
        top_p: float | None = None,
        top_k: int | None = None,
        *,
        output_expires_after: int | None = None,
        idempotency_key: str | None = None,
    ) -> Json:
        """Create a batch of the requests in an uploaded file.

        `max_decoding_length` to `top_k` are defaults for requests that do not say them: most output tokens, most
        tokens in all, and the sampling parameters. Results are kept for `output_expires_after` seconds at least. A
        call repeated with the same `idempotency_key` returns the same batch.
        """
        given = {
            "input_file_id": input_file_id,
            "endpoint": endpoint,
            "completion_window": completion_window,
            "metadata": dict(metadata) if metadata else None,
            "max_decoding_length": max_decoding_length,
            "max_context_length": max_context_length,
            "temperature": temperature,
            "top_p": top_p,
            "top_k": top_k,
            "output_expires_after": _after(output_expires_after),
        }
        return await self._create(given, idempotency_key)

    async def create_direct_batch(
        self,
        requests: Iterable[Mapping[str, Any]],
        *,
        completion_window: str = "24h",
        metadata: Mapping[str, str] | None = None,
        max_decoding_length: int | None = None,
        max_context_length: int | None = None,
        temperature: float | None = None,
        top_p: float | None = None,
        top_k: int | None = None,
        output_expires_after: int | None = None,
        idempotency_key: str | None = None,
    ) -> Json:
        """Create a batch of requests without uploading a file first.

        Each request has `custom_id` and `body`, and may have `method` (POST) and `url` (chat completions); all are
        for one url. They are checked before the call returns: one that is wrong refuses all, with BadRequest.
        """
        given = {
            "requests": [dict(request) for request in requests],
            "completion_window": completion_window,
            "metadata": dict(metadata) if metadata else None,
            "max_decoding_length": max_decoding_length,
            "max_context_length": max_context_length,
            "temperature": temperature,
            "top_p": top_p,
            "top_k": top_k,
            "output_expires_after": _after(output_expires_after),
        }
        return await self._create(given, idempotency_key)

    async def _create(self, given: Json, key: str | None) -> Json:
        """Make a batch; `given` may hold None for what is left to the server."""
        body = {name: value for name, value in given.items() if value is not None}
        headers = {} if key is None else {"idempotency-key": key}
        return await self._json("POST", "/v1/batches", json=body, headers=headers, patient=key is not None)


def _after(seconds: int | None) -> Json | None:
    return None if seconds is None else {"anchor": "created_at", "seconds": seconds}
