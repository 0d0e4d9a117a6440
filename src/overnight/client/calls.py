"""Everything that a client can do, written once: `AsyncClient` is this as it is, `Client` this over a blocking edge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx

from overnight.client import download
from overnight.client.asking import Json, in_path
from overnight.client.creates import CHAT, Creates
from overnight.client.errors import BatchFailed, ConnectionFailed, ServerFault, TooManyRequests, WaitTimeout
from overnight.client.files import Files, Named
from overnight.client.ordered import fetch_lines, keep_answered
from overnight.client.progress import ENDED, Watch, watch
from overnight.client.sending import exchange, object_of
from overnight.client.uploads import Uploads
from overnight.client.verbs import Verbs

FIRST_LOOK = 0.25
"""Seconds between the first looks at a batch, doubling up to the poll interval: short batches are not kept waiting."""
HEALTH_TIMEOUT = 10.0


class Calls(Creates, Files, Uploads, Verbs):
    """The calls of one server. Batches, files and models come and go as the API's own JSON objects.

    Every call may raise ApiError and ConnectionFailed. A full server (429) is waited for: as long as it asks, else
    1, 2, 4 … 60 s, at most five times.
    """

    async def health_check(self) -> bool:
        """Whether the server is there and says that it is healthy. Raises nothing."""
        try:
            response = await self._edge.send(self._edge.http.build_request("GET", "/health", timeout=HEALTH_TIMEOUT))
        except httpx.RequestError:
            return False
        return response.status_code == 200

    async def health(self) -> Json:
        """What the server says of its health: `status`, and the `reason` where it is not healthy."""

        def make() -> httpx.Request:
            return self._edge.http.build_request("GET", "/health", timeout=HEALTH_TIMEOUT)

        return object_of(await exchange(self._edge, make, wanted=(503,)))

    async def get_batch(self, batch_id: str) -> Json:
        """The batch as it is now."""
        return await self._json("GET", f"/v1/batches/{in_path(batch_id)}")

    async def list_batches(
        self,
        limit: int | None = None,
        after: str | None = None,
        status: str | Sequence[str] | None = None,
        q: str | None = None,
        *,
        endpoint: str | None = None,
        model: str | None = None,
        created_after: int | None = None,
        created_before: int | None = None,
    ) -> Json:
        """A page of your batches, newest first: `data`, `has_more`, and `last_id` for the next page's `after`.

        They may be narrowed to some statuses, to those whose id begins with `q` or whose metadata holds it, to an
        endpoint, a model, and a time of creation, in unix seconds.
        """
        given = {
            "limit": limit,
            "after": after,
            "status": status,
            "q": q,
            "endpoint": endpoint,
            "model": model,
            "created_after": created_after,
            "created_before": created_before,
        }
        return await self._json("GET", "/v1/batches", params=given)

    async def wait_for_batch(
        self,
        batch_id: str,
        poll_interval: float = 5.0,
        timeout: float | None = None,
        *,
        progress: bool | Watch = False,
    ) -> Json:
        """Wait until a batch is completed and return it, looking at it every `poll_interval` seconds at the latest.

        Outlives a server that is away for half a minute. `progress` shows a line on standard error, or is called
        with the batch at each look. Raises BatchFailed where it ends otherwise, and WaitTimeout after `timeout`
        seconds, also where the server is away, full or silent then.
        """
        seen = watch(progress)
        gap = min(FIRST_LOOK, poll_interval)
        ends = None if timeout is None else self._edge.now() + timeout
        while True:
            batch = await self._look(batch_id, ends, timeout)
            seen(batch)
            if batch["status"] == "completed":
                return batch
            if batch["status"] in ENDED:
                raise BatchFailed(batch)
            left = gap if ends is None else ends - self._edge.now()
            if left <= 0:
                raise WaitTimeout(f"The batch {batch_id} is still {batch['status']} after {timeout:g} s; it goes on.")
            await self._edge.sleep(min(gap, left))
            gap = min(gap * 2, poll_interval)

    async def _look(self, batch_id: str, ends: float | None, timeout: float | None) -> Json:
        """The batch as it is now. Raises WaitTimeout where the server does not say it before time is over."""
        try:
            return await self._json("GET", f"/v1/batches/{in_path(batch_id)}", patient=True, ends=ends)
        except (ConnectionFailed, ServerFault, TooManyRequests) as e:
            if ends is None or self._edge.now() < ends:
                raise
            raise WaitTimeout(f"After {timeout:g} s it is not known how far the batch {batch_id} is. {e}") from e

    async def submit_batch(
        self,
        input_file_path: Named,
        output_file_path: Named | None = None,
        endpoint: str = CHAT,
        poll_interval: float = 5.0,
        timeout: float | None = None,
        max_decoding_length: int | None = None,
        max_context_length: int | None = None,
        temperature: float | None = None,
        top_p: float | None = None,
        top_k: int | None = None,
        *,
        completion_window: str = "24h",
        metadata: Mapping[str, str] | None = None,
        progress: bool | Watch = False,
    ) -> Json:
        """Upload a file, run it as a batch, wait, and write the results; return the completed batch.

        `output_file_path` gets one line for each request, errors included, all at once when the batch has ended.
        Raises what `wait_for_batch` does; results of a batch that ended early are written before. Raises OSError
        before anything is sent where they could not be.
        """
        if output_file_path is not None:
            await self._edge.run(download.check_target, Path(output_file_path))
        file = await self.upload_file(input_file_path)
        batch = await self.create_batch(
            file["id"],
            endpoint,
            completion_window,
            metadata,
            max_decoding_length,
            max_context_length,
            temperature,
            top_p,
            top_k,
        )
        try:
            batch = await self.wait_for_batch(batch["id"], poll_interval, timeout, progress=progress)
        except BatchFailed as e:
            if output_file_path is not None:
                await self.write_results(e.batch, output_file_path)
            raise
        if output_file_path is not None:
            await self.write_results(batch, output_file_path)
        return batch

    async def request_now(self, body: Mapping[str, Any], endpoint: str = CHAT) -> Json:
        """Have one request answered at once by its model, and return the whole answer; nothing of it is stored.

        Raises ValueError for a body that asks for a stream.
        """
        if body.get("stream"):
            raise ValueError("the answer comes whole: leave `stream` out, or use an SDK of OpenAI's API for streams")
        return await self._json("POST", endpoint, json=dict(body))

    async def pool_status(self) -> Json:
        """How full the server's queue and slots are."""
        return await self._json("GET", "/v1/pool/status")

    async def models(self) -> list[Json]:
        """The models that batches may name."""
        page = await self._json("GET", "/v1/models")
        found: list[Json] = page["data"]
        return found

    async def get_model(self, model_id: str) -> Json:
        """One of these models, by its id or an alias."""
        return await self._json("GET", f"/v1/models/{in_path(model_id)}")

    async def download_unfinished(self, batch_id: str, path: Named) -> Path:
        """Write the requests of a batch that have no response to `path`, all at once, as a file to upload again."""
        target = Path(path)

        def ask(_: dict[str, str]) -> httpx.Request:
            return self._edge.http.build_request(
                "GET",
                f"/v1/batches/{in_path(batch_id)}/unfinished.jsonl",
                headers={"accept-encoding": "identity"},
            )

        part = download.part_of(target, batch_id)
        try:
            await download.fetch_unchecked(self._edge, ask, part)
            await self._edge.run(download.put_together, [part], target)
        finally:
            await self._edge.run(_removed, part)
        return target

    async def write_results(self, batch: Json, path: Named, *, errors: bool = True, ordered: bool = False) -> bool:
        """Write the results of a batch that has ended to `path`, all at once: a line for each request.

        They come as they finished, errors last, or with `ordered` in the order of the requests. With `errors` False,
        only the requests that have a response. Says whether there was anything to write.
        """
        if ordered or batch.get("input_file_id", "") is None:
            return await self._write_ordered(batch["id"], Path(path), errors)
        names = ("output_file_id", "error_file_id") if errors else ("output_file_id",)
        results = [batch[name] for name in names if batch.get(name) is not None]
        if results:
            await self._download(results, Path(path))
        return bool(results)

    async def _write_ordered(self, batch_id: str, target: Path, errors: bool) -> bool:
        def ask(offset: int) -> httpx.Request:
            return self._edge.http.build_request(
                "GET",
                f"/v1/batches/{in_path(batch_id)}/output.jsonl",
                params={"order": "submitted", "offset": offset},
                headers={"accept-encoding": "identity"},
            )

        part = download.part_of(target, batch_id)
        try:
            await fetch_lines(self._edge, ask, part)
            if not errors:
                await self._edge.run(keep_answered, part)
            if not (await self._edge.run(part.stat)).st_size:
                return False
            await self._edge.run(download.put_together, [part], target)
            return True
        finally:
            await self._edge.run(_removed, part)


def _removed(path: Path) -> None:
    path.unlink(missing_ok=True)
