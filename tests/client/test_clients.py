"""How clients are made, what they show of themselves, and what they leave behind."""

from __future__ import annotations

import asyncio
import inspect
import pydoc
import subprocess
import sys
import threading
import typing
from collections.abc import Generator
from typing import Any

import pytest

import overnight
from overnight.client import AsyncClient, Client
from overnight.client.calls import Calls
from tests.client.conftest import Caller
from tests.client.scripted import reply, scripted

POOL = {"intake_pool_size": 0}


@pytest.mark.parametrize("suffix", ["", "/", "/v1", "/v1/"])
async def test_the_base_url_may_end_in_v1_or_not(call: Caller, suffix: str) -> None:
    async with scripted(reply(200, POOL)) as server:
        assert await call(call.client(server.url + suffix), "pool_status") == POOL
    assert server.asked[0].path == "/v1/pool/status"


async def test_a_server_below_a_path_is_reached_there(call: Caller) -> None:
    async with scripted(reply(200, POOL)) as server:
        await call(call.client(server.url.removeprefix("http://") + "/batch/v1"), "pool_status")
    assert server.asked[0].path == "/batch/v1/pool/status"


async def test_the_key_is_sent_and_never_shown(call: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OVERNIGHT_API_KEY", "ovn-from-the-environment")
    async with scripted(*[reply(200, POOL)] * 3) as server:
        for key in (None, "ovn-given", ""):
            client = call.client(server.url, api_key=key)
            await call(client, "pool_status")
            assert "ovn-" not in repr(client) + str(vars(client))
    sent = [a.headers.get("authorization") for a in server.asked]
    assert sent == ["Bearer ovn-from-the-environment", "Bearer ovn-given", None]


async def test_a_password_in_the_address_is_never_shown(call: Caller) -> None:
    client = call.client("http://me:secret@127.0.0.1:1")
    assert "secret" not in repr(client)
    with pytest.raises(overnight.client.ConnectionFailed) as raised:
        await call(client, "pool_status")
    assert "secret" not in str(raised.value)


async def test_a_proxy_of_the_environment_is_not_used_on_the_way_to_this_machine(
    call: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:1")
    async with scripted(reply(200, POOL)) as server:
        await call(call.client(server.url), "pool_status")


def test_both_clients_have_every_call_with_the_same_arguments() -> None:
    names = [name for name, _ in inspect.getmembers(Calls, inspect.iscoroutinefunction) if name[0] != "_"]
    assert len(names) >= 23
    for name in names:
        blocking, awaited = getattr(Client, name), getattr(AsyncClient, name)
        assert inspect.signature(blocking).parameters == inspect.signature(awaited).parameters
        assert blocking.__doc__ == awaited.__doc__


def test_what_the_blocking_client_returns_is_said_as_it_is() -> None:
    calls = [call for name, call in inspect.getmembers(Client, inspect.isfunction) if name[0] != "_"]
    assert all("Async" not in pydoc.render_doc(call) for call in calls)
    for call in (Client.results, Client.output):
        assert inspect.signature(call).return_annotation == Generator[dict[str, Any], None, None]
        assert typing.get_type_hints(call)["return"] == Generator[dict[str, Any], None, None]


async def test_the_blocking_client_works_where_an_event_loop_runs() -> None:
    async with scripted(reply(200, POOL)) as server:
        # As in a notebook: the loop of this thread runs while the call blocks it, so the server needs another one.
        answered: list[object] = []

        def notebook() -> None:
            async def cell() -> None:
                with Client(server.url) as client:
                    answered.append(client.pool_status())

            asyncio.run(cell())

        await asyncio.to_thread(notebook)
    assert answered == [POOL]


async def test_threads_may_share_a_blocking_client() -> None:
    count = 40
    async with scripted(*[reply(200, {"n": i}) for i in range(count)]) as server:
        with Client(server.url) as client:
            got = await asyncio.gather(*[asyncio.to_thread(client.pool_status) for _ in range(count)])
    assert sorted(g["n"] for g in got) == list(range(count))


async def test_a_blocking_client_starts_no_thread() -> None:
    during: set[threading.Thread] = set()

    def use(url: str) -> None:
        before = set(threading.enumerate())
        with Client(url) as client:
            client.pool_status()
            during.update(set(threading.enumerate()) - before)

    async with scripted(reply(200, POOL)) as server:
        await asyncio.to_thread(use, server.url)
    assert during == set()


def test_the_clients_are_at_hand_and_cost_nothing_until_used() -> None:
    code = (
        "import sys, overnight\n"
        "assert not {'httpx', 'asyncio', 'overnight.client'} & set(sys.modules)\n"
        "assert overnight.Client is overnight.client.Client\n"
        "assert overnight.AsyncClient is overnight.client.AsyncClient\n"
        "assert not [m for m in sys.modules if m.startswith('overnight.') and not m.startswith('overnight.client')]\n"
        "assert not hasattr(overnight, 'client_of_another_name')\n"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
