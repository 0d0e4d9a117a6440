"""A process follows the settings of the database, wherever they were changed, and pauses where its disk is full."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from overnight import current_limits
from overnight.current_limits import LEAST_WAIT, CurrentLimits, disk_is_low
from overnight.domain.errors import Unusable
from overnight.domain.limits import GIB, KIB, Limits
from overnight.domain.settings_table import TABLE
from overnight.server import running
from overnight.settings import Part, Settings, Upstream
from overnight.store import settings
from overnight.store.life import BEAT_EVERY, Life
from overnight.store.pool import Store


def following(store: Store, **given: int) -> tuple[Limits, CurrentLimits]:
    limits = Limits(**given)  # type: ignore[arg-type]
    return limits, CurrentLimits(store, limits, lambda: False)


async def test_every_process_has_a_change_after_its_next_look_and_needs_no_restart(store: Store) -> None:
    processes = [following(store) for _ in range(3)]
    for _, current in processes:
        await current.round()
    await settings.change(store, {"BATCH_MAX_LINE_KB": 9, "BATCH_ENABLED": False})
    for limits, current in processes:
        await current.round()
        assert (limits.line_bytes, limits.enabled) == (9 * KIB, False)
    await settings.reset(store, ["BATCH_MAX_LINE_KB"])
    for limits, current in processes:
        await current.round()
        assert (limits.line_bytes, limits.enabled) == (Limits().line_bytes, False)


def test_from_one_look_to_the_next_it_is_less_than_two_seconds_whether_heartbeats_tell_or_not() -> None:
    assert max(BEAT_EVERY, current_limits.REFRESH_EVERY) + LEAST_WAIT < 2.0


async def test_a_heartbeat_brings_what_was_set(store: Store) -> None:
    limits, current = following(store)
    life = Life(store)
    told: list[dict[str, object]] = []

    def hear(stored: dict[str, object], asked: float) -> None:
        told.append(stored)
        current.take(stored, asked)

    life.on_settings = hear
    await life.begin()
    await life.beat()
    assert (limits, told) == (Limits(), [{}])
    await settings.change(store, {"BATCH_MAX_LINE_KB": 9, "BATCH_ENABLED": False})
    await settings.reset(store, ["BATCH_RETENTION_DAYS"])
    await life.beat()
    assert (limits.line_bytes, limits.enabled) == (9 * KIB, False)
    assert told[1:] == [await settings.read(store)]
    await life.end()


async def test_the_database_is_asked_only_where_no_heartbeat_told_lately_or_the_bell_rang(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1_000.0
    monkeypatch.setattr(current_limits, "monotonic", lambda: now)
    limits, current = following(store)
    await settings.change(store, {"BATCH_MAX_REQUESTS": 5})
    current.take({"BATCH_MAX_REQUESTS": 4}, now)
    assert await current.round_if_due() is False
    assert limits.batch_requests == 4
    now += current.wait()
    assert await current.round_if_due() is True
    assert limits.batch_requests == 5
    await settings.change(store, {"BATCH_MAX_REQUESTS": 6})
    assert await current.round_if_due() is False
    current.bell.ring()
    assert await current.round_if_due() is True
    assert limits.batch_requests == 6


async def test_a_look_that_was_asked_for_before_another_changes_nothing_after_it(store: Store) -> None:
    limits, current = following(store)
    assert current.take({"BATCH_MAX_REQUESTS": 5}, 2.0) is True
    assert current.take({"BATCH_MAX_REQUESTS": 4}, 1.0) is False
    assert limits.batch_requests == 5


async def test_without_a_database_the_next_look_waits_too(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(current_limits, "monotonic", lambda: 1_000.0)
    _, current = following(store)
    await store.close()
    await current.round()
    assert current.wait() == current_limits.REFRESH_EVERY


async def test_what_a_process_was_started_with_stays(store: Store) -> None:
    limits, current = following(store, intake=7, slots=3)
    await settings.change(store, {"BATCH_MAX_REQUESTS": 5})
    await current.round()
    assert (limits.intake, limits.slots, limits.batch_requests) == (7, 3, 5)


async def test_nothing_starts_while_batches_are_off_or_the_disk_is_full(store: Store) -> None:
    limits, low = Limits(slots=5), False
    current = CurrentLimits(store, limits, lambda: low)
    await settings.change(store, {"BATCH_ENABLED": False})
    await current.round()
    assert limits.slots == 0
    await settings.change(store, {"BATCH_ENABLED": True})
    low = True
    await current.round()
    assert limits.slots == 0
    low = False
    await current.round()
    assert limits.slots == 5


async def test_without_a_database_the_last_known_settings_hold_and_the_disk_is_still_looked_at(store: Store) -> None:
    low = False
    limits = Limits(slots=5)
    current = CurrentLimits(store, limits, lambda: low)
    await settings.change(store, {"BATCH_MAX_REQUESTS": 5})
    await current.round()
    await store.close()
    low = True
    assert await current.round() is True
    assert await current.round() is False
    assert (limits.batch_requests, limits.slots) == (5, 0)


async def test_the_environment_gives_the_first_value_only(store: Store) -> None:
    limits, current = following(store)
    await current.take_first({"BATCH_MAX_REQUESTS": "11", "BATCH_RETENTION_DAYS": "", "PATH": "/bin"})
    await current.round()
    assert limits.batch_requests == 11
    await settings.change(store, {"BATCH_MAX_REQUESTS": 12})
    await current.take_first({"BATCH_MAX_REQUESTS": "not even read"})
    await settings.reset(store, ["BATCH_RETENTION_DAYS"])
    await current.take_first({"BATCH_RETENTION_DAYS": "3"})
    await current.round()
    assert (limits.batch_requests, limits.retention) == (12, Limits().retention)


async def test_a_process_does_not_start_with_a_first_value_that_cannot_be_taken(store: Store) -> None:
    _, current = following(store)
    with pytest.raises(Unusable, match=r"BATCH_ENABLED must be on or off.*environment"):
        await current.take_first({"BATCH_MAX_REQUESTS": "11", "BATCH_ENABLED": "perhaps"})
    assert await settings.read(store) == {}


@pytest.mark.parametrize(
    ("total", "free", "low"),
    [
        (100 * GIB, GIB, False),
        (100 * GIB, GIB - 1, True),
        (10 * GIB, GIB // 2, False),
        (10 * GIB, GIB // 2 - 1, True),
    ],
)
def test_a_disk_is_low_below_a_gibibyte_or_on_a_small_one_below_a_twentieth(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, total: int, free: int, low: bool
) -> None:
    class Usage:
        pass

    usage = Usage()
    usage.total, usage.free = total, free  # type: ignore[attr-defined]
    monkeypatch.setattr("overnight.current_limits.shutil.disk_usage", lambda _: usage)
    assert disk_is_low(tmp_path) is low


def test_every_setting_can_be_given_in_the_environment() -> None:
    assert all(setting.name.isupper() and setting.name.isascii() for setting in TABLE)


@pytest.mark.usefixtures("collector_as_before")
@pytest.mark.parametrize("part", list(Part))
async def test_a_process_of_whatever_part_follows_a_change_while_it_runs(
    store: Store, store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: Part
) -> None:
    monkeypatch.setattr("overnight.current_limits.REFRESH_EVERY", 0.01)
    monkeypatch.setenv("BATCH_RETENTION_DAYS", "3")
    nobody = Upstream("http://127.0.0.1:9/v1")
    chosen = Settings(tmp_path, port=0, database_url=store_url, upstreams=(nobody,), parts=frozenset({part}))
    async with running(chosen):
        assert chosen.limits.retention.days == 3
        await settings.change(store, {"BATCH_MAX_LINE_KB": 9})
        async with asyncio.timeout(60):
            while chosen.limits.line_bytes != 9 * KIB:
                await asyncio.sleep(0.01)


@pytest.mark.usefixtures("collector_as_before")
@pytest.mark.parametrize("part", list(Part))
async def test_its_heartbeats_tell_a_process_of_a_change_that_it_does_not_hear_of(
    store: Store, store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: Part
) -> None:
    monkeypatch.setattr("overnight.current_limits.REFRESH_EVERY", 3_600)
    monkeypatch.setattr("overnight.server.SETTINGS", "nobody_says_this")
    monkeypatch.setattr("overnight.server.BEAT_EVERY", 0.01)
    monkeypatch.setattr("overnight.worker.worker.BEAT_EVERY", 0.01)
    nobody = Upstream("http://127.0.0.1:9/v1")
    chosen = Settings(tmp_path, port=0, database_url=store_url, upstreams=(nobody,), parts=frozenset({part}))
    async with running(chosen) as server, asyncio.timeout(30):
        rung = server.running.rings
        await settings.change(store, {"BATCH_MAX_LINE_KB": 9})
        while chosen.limits.line_bytes != 9 * KIB:
            await asyncio.sleep(0.01)
        assert server.running.rings > rung
