"""What can be asked of a batch that exists: to stop, to wait, to go on, to be run again, to go; and its results."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

import httpx

from overnight.client.asking import Asking, Json, in_path
from overnight.client.ordered import read_lines
from overnight.client.sending import read_object

RESULTS_AT_ONCE = 1_000


class Verbs(Asking):
    """The calls about one batch."""

    async def cancel_batch(self, batch_id: str) -> Json:
        """Cancel what has not started of a batch; what runs finishes and keeps its results."""
        return await self._json("POST", f"/v1/batches/{in_path(batch_id)}/cancel")

    async def pause_batch(self, batch_id: str) -> Json:
        """Start nothing of a batch until it is resumed; what runs finishes."""
        return await self._json("POST", f"/v1/batches/{in_path(batch_id)}/pause")

    async def resume_batch(self, batch_id: str) -> Json:
        """Go on with a batch that was paused."""
        return await self._json("POST", f"/v1/batches/{in_path(batch_id)}/resume")

    async def retry_batch(self, batch_id: str) -> Json:
        """Make a new batch of the requests that one which has ended left without a response, and return it."""
        return await self._json("POST", f"/v1/batches/{in_path(batch_id)}/retry")

    async def delete_batch(self, batch_id: str) -> Json:
        """Delete a batch with its requests and results, for good."""
        return await self._json("DELETE", f"/v1/batches/{in_path(batch_id)}")

    async def list_results(self, batch_id: str, limit: int | None = None, after: str | None = None) -> Json:
        """A page of a batch's requests in the order of submission, each with what became of it so far."""
        return await self._json(
            "GET", f"/v1/batches/{in_path(batch_id)}/results", params={"limit": limit, "after": after}
        )

    async def results(self, batch_id: str) -> AsyncGenerator[Json, None]:
        """Every request of a batch in the order of submission, with what became of it so far; a page at a time."""
        after: str | None = None
        while True:
            page = await self.list_results(batch_id, RESULTS_AT_ONCE, after)
            for result in page["data"]:
                yield result
            if not page["has_more"]:
                return
            after = page["last_id"]

    async def output(self, batch_id: str, offset: int = 0, *, order: str = "finished") -> AsyncGenerator[Json, None]:
        """The lines of a batch's results that there are by now, from the one numbered `offset` on, counted from 0.

        While the batch runs, they are those with a response, as they finished; a later call goes on after those that
        were read. With `order` "submitted" all of a batch that has ended come in the order of its requests, those
        without a response included. What breaks off is continued.
        """

        path = f"/v1/batches/{in_path(batch_id)}/output.jsonl"

        def ask(have: int) -> httpx.Request:
            return self._edge.http.build_request(
                "GET",
                path,
                params={"order": order, "offset": offset + have},
                headers={"accept-encoding": "identity"},
            )

        async with aclosing(read_lines(self._edge, ask)) as lines:
            async for line in lines:
                yield read_object(line, f"GET {path}")
