"""The calls about files that are sent in parts."""

from __future__ import annotations

from collections.abc import Sequence

import httpx

from overnight.client.asking import Asking, Json, in_path
from overnight.client.sending import exchange, object_of


class Uploads(Asking):
    """Sending a file in parts, in any order and several at once; the server gives an upload up after an hour."""

    async def create_upload(
        self, filename: str, size: int, purpose: str = "batch", *, expires_after: int | None = None
    ) -> Json:
        """Begin to send a file of `size` bytes; return the upload. The file lives as `upload_file` says."""
        given: Json = {"filename": filename, "bytes": size, "purpose": purpose, "mime_type": "application/jsonl"}
        if expires_after is not None:
            given["expires_after"] = {"anchor": "created_at", "seconds": expires_after}
        return await self._json("POST", "/v1/uploads", json=given)

    async def get_upload(self, upload_id: str) -> Json:
        """The upload as it is now."""
        return await self._json("GET", f"/v1/uploads/{in_path(upload_id)}")

    async def add_upload_part(self, upload_id: str, data: bytes) -> Json:
        """Send some bytes of the file, up to 64 MiB of them; return the part, whose `id` completes the upload."""

        def make() -> httpx.Request:
            return self._edge.http.build_request(
                "POST", f"/v1/uploads/{in_path(upload_id)}/parts", files={"data": ("data", data)}
            )

        return object_of(await exchange(self._edge, make))

    async def complete_upload(self, upload_id: str, part_ids: Sequence[str], *, md5: str | None = None) -> Json:
        """Make the file of parts, in this order, and return the upload; its `file` is the file object.

        With `md5`, in hexadecimal digits, the server checks the whole. Completing again returns the same, so the call
        is tried again where the server is away for half a minute.
        """
        given: Json = {"part_ids": list(part_ids)} | ({} if md5 is None else {"md5": md5})
        return await self._json("POST", f"/v1/uploads/{in_path(upload_id)}/complete", json=given, patient=True)

    async def cancel_upload(self, upload_id: str) -> Json:
        """Give an upload up; its parts go."""
        return await self._json("POST", f"/v1/uploads/{in_path(upload_id)}/cancel")
