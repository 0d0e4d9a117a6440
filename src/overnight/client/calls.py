"""Everything that a client can do, written once: `AsyncClient` is this as it is, `Client` this over a blocking edge."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

import httpx

from overnight.client import download
from overnight.client.asking import Json, in_path
from overnight.client.creates import CHAT, Creates
from overnight.client.errors import BatchFailed, WaitTimeout
from overnight.client.ordered import fetch_lines, keep_answered
from overnight.client.progress import ENDED, Watch, watch
from overnight.client.sending import exchange, object_of
from overnight.client.verbs import Verbs

Named = str | os.PathLike[str]

FIRST_LOOK = 0.25
"""Seconds between the first looks at a batch, doubling up to the poll interval: short batches are not kept waiting."""
HEALTH_TIMEOUT = 10.0


class Calls(Creates, Verbs):
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

    async def upload_file(self, file_path: Named, purpose: str = "batch") -> Json:
        """Upload a file, streamed from the disk, and return the file object.

        Its `problems` already tell what is wrong with the lines, if anything is. Raises OSError where the file
        cannot be read.
        """
        path = Path(file_path)
        with await self._edge.run(_opened, path) as file:

            def make() -> httpx.Request:
                file.seek(0)
                return self._edge.http.build_request(
                    "POST",
                    "/v1/files",
                    data={"purpose": purpose},
                    files={"file": (path.name, file, "application/jsonl")},
                )

            response = await exchange(self._edge, make)
        return object_of(response)

    async def get_file(self, file_id: str) -> Json:
        """The file object."""
        return await self._json("GET", f"/v1/files/{in_path(file_id)}")

    async def list_files(
        self,
        purpose: str | None = None,
        limit: int | None = None,
        order: str | None = None,
        after: str | None = None,
    ) -> Json:
        """A page of your files: `data`, `has_more`, and `last_id` for the next page's `after`."""
        given = {"purpose": purpose, "limit": limit, "order": order, "after": after}
        return await self._json("GET", "/v1/files", params=given)

    async def delete_file(self, file_id: str) -> Json:
        """Delete a file for good."""
        return await self._json("DELETE", f"/v1/files/{in_path(file_id)}")

    async def download_file_content(self, file_id: str) -> bytes:
        """The whole content, in memory; `download_file` is for large ones."""

        def make() -> httpx.Request:
            return self._content_request(file_id, {})

        return (await exchange(self._edge, make, patient=True)).content

    async def download_file(self, file_id: str, path: Named) -> Path:
        """Write a file's content to `path`, which is there only once all of it is, and is what the server has.

        Goes on where a connection, or an earlier call for the same path, broke off. Raises DownloadDamaged, OSError.
        """
        target = Path(path)
        await self._download([file_id], target)
        return target

    async def get_batch(self, batch_id: str) -> Json:
        """The batch as it is now."""
        return await self._json("GET", f"/v1/batches/{in_path(batch_id)}")

    async def list_batches(
        self,
        limit: int | None = None,
        after: str | None = None,
        status: str | Sequence[str] | None = None,
        q: str | None = None,
    ) -> Json:
        """A page of your batches, newest first: `data`, `has_more`, and `last_id` for the next page's `after`.

        They may be narrowed to some statuses, and to those whose id begins with `q` or whose metadata holds it.
        """
        given = {"limit": limit, "after": after, "status": status, "q": q}
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
        with the batch at each look. Raises BatchFailed where it ends otherwise, WaitTimeout after `timeout` seconds.
        """
        seen = watch(progress)
        gap = min(FIRST_LOOK, poll_interval)
        ends = None if timeout is None else self._edge.now() + timeout
        while True:
            batch = await self._json("GET", f"/v1/batches/{in_path(batch_id)}", patient=True)
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
        Raises what `wait_for_batch` does; results of a batch that ended early are written before.
        """
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

    async def pool_status(self) -> Json:
        """How full the server's queue and slots are."""
        return await self._json("GET", "/v1/pool/status")

    async def models(self) -> list[Json]:
        """The models that batches may name."""
        page = await self._json("GET", "/v1/models")
        found: list[Json] = page["data"]
        return found

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

    async def download_files(self, file_ids: Sequence[str], path: Named) -> Path:
        """Write the contents of some files to `path`, one after the other; as `download_file` for each."""
        if not file_ids:
            raise ValueError("an id is needed; there is none")
        await self._download(file_ids, Path(path))
        return Path(path)

    async def _download(self, file_ids: Sequence[str], target: Path) -> None:
        parts = []
        for file_id in file_ids:

            def ask(headers: dict[str, str], file_id: str = file_id) -> httpx.Request:
                return self._content_request(file_id, headers)

            file = await self._json("GET", f"/v1/files/{in_path(file_id)}", patient=True)
            part = download.part_of(target, file["id"])
            if file.get("sha256"):
                await download.fetch(self._edge, ask, part, file["bytes"], file["sha256"])
            else:
                await download.fetch_unchecked(self._edge, ask, part)
            parts.append(part)
        await self._edge.run(download.put_together, parts, target)

    def _content_request(self, file_id: str, headers: dict[str, str]) -> httpx.Request:
        # Compressed, neither ranges nor the digest would be those of the file.
        headers = {"accept": "application/octet-stream", "accept-encoding": "identity", **headers}
        return self._edge.http.build_request("GET", f"/v1/files/{in_path(file_id)}/content", headers=headers)


def _opened(path: Path) -> BinaryIO:
    return path.open("rb")


def _removed(path: Path) -> None:
    path.unlink(missing_ok=True)
