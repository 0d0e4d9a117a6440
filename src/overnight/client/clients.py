"""`AsyncClient` and `Client`: the same calls, awaited or blocking."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from functools import wraps
from inspect import signature
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, get_args, get_type_hints

import httpx

from overnight.client.calls import Calls
from overnight.client.edge import Async, Blocking, finish, is_on_this_machine
from overnight.client.silence import AsyncTold, BlockingTold, OnSilence

P = ParamSpec("P")
T = TypeVar("T")

DEFAULT_BASE_URL = "http://127.0.0.1:10900"
TIMEOUT = 600.0
CONNECT_TIMEOUT = 10.0


class AsyncClient(Calls):
    """A client of an Overnight server for asynchronous programs.

    `base_url` may end in /v1 or not. `api_key` is taken from `$OVERNIGHT_API_KEY` where it is not given.
    `timeout_s` bounds each wait for the server within a call; None waits for ever. `on_silence` is called about once
    a second while a call waits, with the seconds for which the server has said nothing.
    """

    def __init__(
        self,
        base_url: str = DEFAULT_BASE_URL,
        timeout_s: float | None = TIMEOUT,
        *,
        api_key: str | None = None,
        on_silence: OnSilence | None = None,
    ) -> None:
        options = _options(base_url, timeout_s, api_key)
        self._base_url = options["base_url"]
        http = httpx.AsyncClient(**options)
        super().__init__(Async(http) if on_silence is None else AsyncTold(http, on_silence))

    @property
    def base_url(self) -> str:
        """The address of the server, without a password that it may hold."""
        return _shown(self._base_url)

    def __repr__(self) -> str:
        return f"AsyncClient({self.base_url!r})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def _blocking(call: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[Client, P], T]:
    @wraps(call)
    def run(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return finish(call(self._calls, *args, **kwargs))

    return run


def _one_by_one(
    call: Callable[Concatenate[Any, P], AsyncGenerator[T, None]],
) -> Callable[Concatenate[Client, P], Generator[T, None, None]]:
    @wraps(call)
    def run(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> Generator[T, None, None]:
        found = call(self._calls, *args, **kwargs)
        try:
            while True:
                try:
                    yield finish(anext(found))
                except StopAsyncIteration:
                    return
        finally:
            # A caller that stops in the middle leaves no connection behind.
            finish(found.aclose())

    # `help` and editors go by the call itself, which says that it is to be awaited.
    each, _ = get_args(get_type_hints(call)["return"])
    returned = Generator[each, None, None]  # type: ignore[valid-type]
    run.__signature__ = signature(call).replace(return_annotation=returned)  # type: ignore[attr-defined]
    run.__annotations__ = {**call.__annotations__, "return": returned}
    return run


class Client:
    """A client of an Overnight server that blocks until it has its answer; threads may share it.

    `base_url` may end in /v1 or not. `api_key` is taken from `$OVERNIGHT_API_KEY` where it is not given.
    `timeout_s` bounds each wait for the server within a call; None waits for ever. `on_silence` is called about once
    a second while a call waits, with the seconds for which the server has said nothing, in another thread.
    """

    def __init__(
        self,
        base_url: str = DEFAULT_BASE_URL,
        timeout_s: float | None = TIMEOUT,
        *,
        api_key: str | None = None,
        on_silence: OnSilence | None = None,
    ) -> None:
        options = _options(base_url, timeout_s, api_key)
        self._base_url = options["base_url"]
        http = httpx.Client(**options)
        self._calls = Calls(Blocking(http) if on_silence is None else BlockingTold(http, on_silence))

    @property
    def base_url(self) -> str:
        """The address of the server, without a password that it may hold."""
        return _shown(self._base_url)

    def __repr__(self) -> str:
        return f"Client({self.base_url!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    add_upload_part = _blocking(Calls.add_upload_part)
    cancel_batch = _blocking(Calls.cancel_batch)
    cancel_upload = _blocking(Calls.cancel_upload)
    close = _blocking(Calls.close)
    complete_upload = _blocking(Calls.complete_upload)
    create_batch = _blocking(Calls.create_batch)
    create_direct_batch = _blocking(Calls.create_direct_batch)
    create_upload = _blocking(Calls.create_upload)
    delete_batch = _blocking(Calls.delete_batch)
    delete_file = _blocking(Calls.delete_file)
    download_file = _blocking(Calls.download_file)
    download_files = _blocking(Calls.download_files)
    download_file_content = _blocking(Calls.download_file_content)
    download_unfinished = _blocking(Calls.download_unfinished)
    get_batch = _blocking(Calls.get_batch)
    get_file = _blocking(Calls.get_file)
    get_model = _blocking(Calls.get_model)
    get_upload = _blocking(Calls.get_upload)
    health = _blocking(Calls.health)
    health_check = _blocking(Calls.health_check)
    list_batches = _blocking(Calls.list_batches)
    list_files = _blocking(Calls.list_files)
    list_results = _blocking(Calls.list_results)
    models = _blocking(Calls.models)
    pause_batch = _blocking(Calls.pause_batch)
    pool_status = _blocking(Calls.pool_status)
    request_now = _blocking(Calls.request_now)
    resume_batch = _blocking(Calls.resume_batch)
    retry_batch = _blocking(Calls.retry_batch)
    submit_batch = _blocking(Calls.submit_batch)
    upload_file = _blocking(Calls.upload_file)
    wait_for_batch = _blocking(Calls.wait_for_batch)
    write_results = _blocking(Calls.write_results)
    output = _one_by_one(Calls.output)
    results = _one_by_one(Calls.results)


def _options(base_url: str, timeout_s: float | None, api_key: str | None) -> dict[str, Any]:
    """What the connections are made with. Raises httpx.InvalidURL."""
    url = httpx.URL(base_url if "://" in base_url else f"http://{base_url}")
    url = url.copy_with(path=url.path.rstrip("/").removesuffix("/v1"))
    key = os.environ.get("OVERNIGHT_API_KEY") if api_key is None else api_key
    return {
        "base_url": url,
        "timeout": httpx.Timeout(timeout_s, connect=CONNECT_TIMEOUT),
        "headers": {"authorization": f"Bearer {key}".encode()} if key else {},
        # A proxy for the way out is of no use on the way to this machine itself, and often set all the same.
        "trust_env": not is_on_this_machine(url.host),
    }


def _shown(url: httpx.URL) -> str:
    return str(url.copy_with(userinfo=b""))
