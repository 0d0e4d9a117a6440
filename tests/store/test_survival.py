"""Whoever is killed, and whenever: the embedded server comes back with everything that was committed."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import asyncpg
import pytest

from overnight.domain.errors import Unusable
from overnight.store import embedded
from overnight.store.binaries import find
from overnight.store.embedded import Embedded, ensure, is_running
from overnight.store.folder import Folder
from tests.store.processes import (
    BINARIES,
    SMALL,
    User,
    count_rows,
    keep_rows,
    keeper_of,
    keepers_of,
    kill,
    postmaster_of,
    run,
    start_server,
    until,
    until_stopped,
)


async def test_committed_rows_survive_a_killed_keeper(folder: Path) -> None:
    async with await start_server(folder) as server:
        await keep_rows(server)
        keeper, postmaster = keeper_of(folder), postmaster_of(folder)
        kill(keeper)
        await server.revive()
        assert await count_rows(server) == 1000
        assert keeper_of(folder) != keeper
        assert postmaster_of(folder) != postmaster


async def test_the_server_stops_in_order_when_its_keeper_is_killed(folder: Path) -> None:
    server = await start_server(folder)
    kill(keeper_of(folder))
    await until(lambda: not is_running(folder))
    assert "database system is shut down" in Folder(folder).server_log.read_text()
    server.release()


async def test_committed_rows_survive_a_killed_postmaster(folder: Path) -> None:
    async with await start_server(folder) as server:
        await keep_rows(server)
        keeper, postmaster = keeper_of(folder), postmaster_of(folder)
        kill(postmaster)
        await server.revive()
        assert await count_rows(server) == 1000
        assert keeper_of(folder) == keeper
        assert postmaster_of(folder) != postmaster


async def test_committed_rows_survive_a_killed_session(folder: Path) -> None:
    async with await start_server(folder) as server:
        await keep_rows(server)
        postmaster = postmaster_of(folder)
        connection = await asyncpg.connect(server.dsn)
        kill(await connection.fetchval("SELECT pg_backend_pid()"))
        with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError, OSError)):
            await connection.fetchval("SELECT 1")
        # The session's end reaches us before its postmaster, which takes connections until it knows.
        await until(lambda: "was terminated by signal 9" in Folder(folder).server_log.read_text())
        await server.revive()
        assert await count_rows(server) == 1000
        assert postmaster_of(folder) == postmaster


async def test_a_session_deep_in_a_query_does_not_hold_up_a_new_server(folder: Path) -> None:
    async with await start_server(folder) as server:
        connection = await asyncpg.connect(server.dsn)
        session = await connection.fetchval("SELECT pg_backend_pid()")
        query = asyncio.create_task(connection.fetchval("SELECT count(*) FROM generate_series(1, 100000000000)"))
        await until_busy(server, session)
        kill(keeper_of(folder))
        kill(postmaster_of(folder))
        async with asyncio.timeout(60):
            await server.revive()
        assert await run(server, "SELECT 1") == 1
        with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError, OSError)):
            await query


async def until_busy(server: Embedded, session: int) -> None:
    async with asyncio.timeout(60):
        while await run(server, "SELECT state FROM pg_stat_activity WHERE pid = $1", session) != "active":
            await asyncio.sleep(0.02)


async def test_many_users_may_revive_the_server_at_once(folder: Path) -> None:
    async with await start_server(folder) as server:
        await keep_rows(server)
        users = [await (await User.start(folder)).holds() for _ in range(3)]
        kill(keeper_of(folder))
        kill(postmaster_of(folder))
        await asyncio.gather(*(user.revive() for user in users), *(server.revive() for _ in range(3)))
        await until(lambda: len(keepers_of(folder)) == 1)
        assert await count_rows(server) == 1000
        await asyncio.gather(*(user.leave() for user in users))


async def test_revive_leaves_a_server_that_runs_alone(folder: Path) -> None:
    async with await start_server(folder) as server:
        keeper, postmaster = keeper_of(folder), postmaster_of(folder)
        await server.revive()
        assert (keeper_of(folder), postmaster_of(folder)) == (keeper, postmaster)


async def test_a_released_user_can_come_back(folder: Path) -> None:
    server = await start_server(folder)
    server.release()
    await until_stopped(folder)
    await server.revive()
    assert await run(server, "SELECT 1") == 1
    server.release()
    server.release()


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A folder of programs that a test may put its own in the place of."""
    real = find(Folder(tmp_path / "none"), BINARIES).folder
    folder = tmp_path / "programs"
    folder.mkdir()
    for name in ("postgres", "initdb"):
        (folder / name).symlink_to(real / name)
    return folder


def replace(program: Path, script: str) -> None:
    """Put a shell script in the place of a program, which it finds as $REAL."""
    real = program.resolve()
    program.unlink()
    program.write_text(f"#!/bin/sh\nREAL='{real}'\n{script}\n")
    program.chmod(0o755)


async def test_a_crash_while_the_data_directory_is_made_leaves_nothing_half_made(
    tmp_path: Path, programs: Path
) -> None:
    folder, begun = tmp_path / "server", tmp_path / "begun"
    hang = f"""
    if [ ! -e '{begun}' ]; then "$REAL" "$@"; touch '{begun}'; exec sleep 1000; fi
    exec "$REAL" "$@"
    """
    replace(programs / "initdb", hang)
    starting = asyncio.create_task(ensure(folder, binaries=programs, settings=SMALL, grace=0))
    await until(begun.exists)
    assert not Folder(folder).data.exists()
    kill(keeper_of(folder))
    async with await starting as server:
        assert await run(server, "SELECT current_database()") == "overnight"
        assert not Folder(folder).half_made.exists()
    await until_stopped(folder)


async def test_a_failing_initdb_is_an_error_that_says_why(tmp_path: Path, programs: Path) -> None:
    replace(programs / "initdb", "echo no room on this disk; exit 1")
    with pytest.raises(Unusable, match="no room on this disk"):
        await ensure(tmp_path / "server", binaries=programs)
    assert not Folder(tmp_path / "server").data.exists()
    await until_stopped(tmp_path / "server")


async def test_a_server_that_is_slow_to_start_is_waited_for(
    folder: Path, programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    go = tmp_path / "go"
    wait = f'while [ "$1" = -D ] && [ ! -e "{go}" ]; do sleep 0.05; done; exec "$REAL" "$@"'
    replace(programs / "postgres", wait)
    monkeypatch.setattr(embedded, "REPORT", 0.2)
    caplog.set_level("INFO", "overnight.store.embedded")
    starting = asyncio.create_task(ensure(folder, binaries=programs, settings=SMALL, grace=0))
    await until(lambda: "waiting for PostgreSQL to start" in caplog.text)
    assert not starting.done()
    go.touch()
    async with await starting as server:
        assert await run(server, "SELECT 1") == 1


async def test_a_pid_file_that_names_another_process_by_now_is_no_obstacle(folder: Path) -> None:
    stale = [str(os.getpid()), str(folder / "data"), "1", "5432", str(folder / "run"), "", "", "ready"]
    (folder / "data" / "postmaster.pid").write_text("\n".join(stale) + "\n")
    (folder / "run").mkdir(mode=0o700)
    (folder / "run" / ".s.PGSQL.5432.lock").write_text("\n".join(stale) + "\n")
    async with await start_server(folder) as server:
        assert await run(server, "SELECT 1") == 1
