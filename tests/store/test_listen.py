"""What one process says in the database rings in another, with the commit."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from overnight.loops import Bell
from overnight.store.listen import NAME, SETTINGS, TIDY, WORK, Listener
from overnight.store.pool import Store

FOR_EVER = 3_600.0


@pytest.fixture
async def ears(store: Store) -> AsyncIterator[dict[str, Bell]]:
    bells = {WORK: Bell(), TIDY: Bell(), SETTINGS: Bell()}
    listening = asyncio.create_task(Listener(store, bells).run())
    await hear(*bells.values())
    try:
        yield bells
    finally:
        listening.cancel()
        await asyncio.wait([listening])


async def hear(*bells: Bell) -> None:
    """Wait until all of them ring."""
    for bell in bells:
        await asyncio.wait_for(bell.wait(FOR_EVER), 60)


async def test_each_channel_has_its_bell(store: Store, ears: dict[str, Bell]) -> None:
    async with store.session() as session:
        for channel, bell in ears.items():
            await session.connection.execute(f"NOTIFY {channel}")
            await hear(bell)
    assert [bell.rings for bell in ears.values()] == [2, 2, 2]


async def test_what_is_not_committed_is_not_heard(store: Store, ears: dict[str, Bell]) -> None:
    async with store.session() as session:
        transaction = session.connection.transaction()
        await transaction.start()
        await session.connection.execute(f"NOTIFY {WORK}")
        await transaction.rollback()
        await session.connection.execute(f"NOTIFY {TIDY}")
    await hear(ears[TIDY])
    assert ears[WORK].rings == 1


async def test_a_broken_connection_is_opened_again_and_everybody_looks_once(
    store: Store, ears: dict[str, Bell]
) -> None:
    async with store.session() as session:
        await session.connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE application_name = $1 AND datname = current_database()",
            NAME,
        )
    await hear(*ears.values())
    async with store.session() as session:
        await session.connection.execute(f"NOTIFY {WORK}")
    await hear(ears[WORK])


async def test_without_a_database_it_waits_and_tries_again(store_url: str) -> None:
    bell = Bell()
    listener = Listener(Store("postgresql://nobody@127.0.0.1:1/none"), {WORK: bell})
    assert await listener.round() is False
    assert not listener.is_listening
    assert bell.rings == 0


async def test_a_connection_that_does_not_answer_is_given_up(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    listener = Listener(store, {WORK: Bell()})
    await listener.round()
    assert listener.is_listening
    assert await listener.round() is False
    assert listener.is_listening

    async def silent(*_: object, **__: object) -> None:
        raise TimeoutError

    assert listener._session is not None
    monkeypatch.setattr(type(listener._session.connection), "execute", silent)
    await listener.round()
    assert not listener.is_listening
