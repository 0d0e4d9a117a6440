"""The calls about files: sent, looked at, fetched, deleted."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

import httpx

from overnight.client import download
from overnight.client.asking import Asking, Json, in_path
from overnight.client.sending import exchange, object_of

Named = str | os.PathLike[str]


class Files(Asking):
    """Input files and result files."""

    async def upload_file(self, file_path: Named, purpose: str = "batch", *, expires_after: int | None = None) -> Json:
        """Upload a file, streamed from the disk, and return the file object.

        Its `problems` already tell what is wrong with the lines, if anything is. The server removes it after
        `expires_after` seconds, else when it usually does. Raises OSError where the file cannot be read.
        """
        path = Path(file_path)
        fields = {"purpose": purpose}
        # A name on disk may hold bytes that are no UTF-8.
        name = path.name.encode(errors="replace").decode()
        if expires_after is not None:
            fields |= {"expires_after[anchor]": "created_at", "expires_after[seconds]": str(expires_after)}
        with await self._edge.run(_opened, path) as file:

            def make() -> httpx.Request:
                file.seek(0)
                return self._edge.http.build_request(
                    "POST",
                    "/v1/files",
                    data=fields,
                    files={"file": (name, file, "application/jsonl")},
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
