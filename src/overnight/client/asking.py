"""How one call is asked and its answer read, whatever it is about."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import httpx

from overnight.client.edge import Edge
from overnight.client.sending import exchange, object_of

Json = dict[str, Any]


class Asking:
    """The connections to one server."""

    def __init__(self, edge: Edge) -> None:
        self._edge = edge

    async def close(self) -> None:
        """Close the connections; the client is of no use afterwards."""
        await self._edge.close()

    async def _json(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, object] | None = None,
        json: Json | None = None,
        headers: Mapping[str, str] | None = None,
        patient: bool = False,
        ends: float | None = None,
    ) -> Json:
        asked: list[tuple[str, str | int | float | bool | None]] = [
            (name, str(value))
            for name, given in (params or {}).items()
            for value in (given if isinstance(given, list | tuple) else [given])
            if value is not None
        ]

        def make() -> httpx.Request:
            return self._edge.http.build_request(
                method, path, params=httpx.QueryParams(asked), json=json, headers=headers
            )

        return object_of(await exchange(self._edge, make, patient=patient, ends=ends))


def in_path(public_id: str) -> str:
    """An id as one part of a path, whatever is in it. Raises ValueError for none at all."""
    if not public_id:
        raise ValueError("an id is needed; this one is empty")
    return quote(public_id, safe="")
