"""OPTIONS for every path: the framework's own answer knows only the methods of one handler of a path."""

from __future__ import annotations

from collections.abc import Iterable

from litestar import Response, route
from litestar.enums import HttpMethod
from litestar.handlers import HTTPRouteHandler


def of_all(handlers: Iterable[HTTPRouteHandler]) -> list[HTTPRouteHandler]:
    """A handler for each path, that says in `Allow` to which methods the path answers."""
    methods: dict[str, set[str]] = {}
    for handler in handlers:
        for path in handler.paths:
            methods.setdefault(path, {HttpMethod.OPTIONS.value}).update(
                HttpMethod(m).value for m in handler.http_methods
            )
    return [_options(path, ", ".join(sorted(allowed))) for path, allowed in methods.items()]


def _options(path: str, allow: str) -> HTTPRouteHandler:
    @route(path, http_method=HttpMethod.OPTIONS)
    async def show_methods() -> Response[bytes]:
        return Response(b"", status_code=204, headers={"allow": allow})

    return show_methods
