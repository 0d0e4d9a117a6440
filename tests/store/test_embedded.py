"""The embedded server is shared by its users, lives as long as the last of them, and survives any death."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
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
    keeper_of,
    keepers_of,
    kill,
    postmaster_of,
    run,
    until,
    until_stopped,
)


async def start(folder: Path) -> Embedded:
    return await ensure(folder, binaries=BINARIES, settings=SMALL, grace=0.2)


async def count_rows(server: Embedded) -> object:
    return await run(server, "SELECT count(*) FROM kept")


async def keep_rows(server: Embedded) -> None:
    await run(server, "CREATE TABLE kept AS SELECT generate_series(1, 1000) AS number")


async def test_the_first_use_of_a_folder_makes_a_server_with_our_database(tmp_path: Path) -> None:
    folder = tmp_path / "not" / "yet" / "there"
    async with await start(folder) as server:
        assert await run(server, "SELECT current_database()") == "overnight"
        assert await run(server, "SHOW server_encoding") == "UTF8"
        assert await run(server, "SHOW data_checksums") == "on"
        assert await run(server, "SHOW fsync") == "on"
        assert await run(server, "SHOW listen_addresses") == ""
        assert await run(server, "SELECT 'ä' < 'b'") is False
    await until_stopped(folder)


async def test_both_forms_of_the_address_lead_to_the_database(folder: Path) -> None:
    async with await start(folder) as server:
        connection = await asyncpg.connect(**server.dsn_kwargs())
        assert await connection.fetchval("SELECT current_database()") == await run(server, "SELECT current_database()")
        await connection.close()


async def test_a_second_process_on_the_same_folder_shares_the_server(folder: Path) -> None:
    async with await start(folder) as server:
        user = await (await User.start(folder)).holds()
        assert user.dsn == server.dsn
        assert len(keepers_of(folder)) == 1
        await keep_rows(server)
        assert await run(user.dsn, "SELECT count(*) FROM kept") == 1000
        await user.leave()
        assert await count_rows(server) == 1000


async def test_the_server_outlives_the_user_that_started_it(folder: Path) -> None:
    first = await (await User.start(folder)).holds()
    async with await start(folder) as server:
        postmaster = postmaster_of(folder)
        await first.leave()
        assert await run(server, "SELECT 1") == 1
        assert postmaster_of(folder) == postmaster


async def test_the_server_stops_with_its_last_user(folder: Path) -> None:
    server = await start(folder)
    assert is_running(folder)
    server.release()
    await until_stopped(folder)
    assert "database system is shut down" in Folder(folder).server_log.read_text()


async def test_a_killed_user_does_not_keep_the_server(folder: Path) -> None:
    user = await (await User.start(folder)).holds()
    assert is_running(folder)
    await user.kill()
    await until_stopped(folder)


async def test_four_processes_that_start_at_once_make_one_server(tmp_path: Path) -> None:
    folder = tmp_path / "server"
    users = [await User.start(folder) for _ in range(4)]
    await asyncio.gather(*(user.holds() for user in users))
    await until(lambda: len(keepers_of(folder)) == 1)
    starts = Folder(folder).server_log.read_text().count("ready to accept connections")
    assert starts == 1
    assert len({await run(user.dsn, "SELECT pg_postmaster_start_time()") for user in users}) == 1
    await asyncio.gather(*(user.leave() for user in users))
    await until_stopped(folder)


async def test_a_user_that_comes_while_the_server_stops_gets_a_new_one(folder: Path) -> None:
    for _ in range(8):
        server = await ensure(folder, settings=SMALL, grace=0)
        assert await run(server, "SELECT 1") == 1
        server.release()
        log = Folder(folder).server_log.read_text
        stops = log().count("received fast shutdown request")
        await until(lambda log=log, stops=stops: log().count("received fast shutdown request") > stops)  # type: ignore[misc]


async def test_users_that_come_and_go_always_have_a_server(folder: Path) -> None:
    async def come_and_go() -> None:
        for _ in range(5):
            async with await ensure(folder, settings=SMALL, grace=0) as server:
                assert await run(server, "SELECT 1") == 1

    await asyncio.gather(*(come_and_go() for _ in range(3)))


async def test_committed_rows_survive_a_killed_keeper(folder: Path) -> None:
    async with await start(folder) as server:
        await keep_rows(server)
        keeper, postmaster = keeper_of(folder), postmaster_of(folder)
        kill(keeper)
        await server.revive()
        assert await count_rows(server) == 1000
        assert keeper_of(folder) != keeper
        assert postmaster_of(folder) != postmaster


async def test_the_server_stops_in_order_when_its_keeper_is_killed(folder: Path) -> None:
    server = await start(folder)
    kill(keeper_of(folder))
    await until(lambda: not is_running(folder))
    assert "database system is shut down" in Folder(folder).server_log.read_text()
    server.release()


async def test_committed_rows_survive_a_killed_postmaster(folder: Path) -> None:
    async with await start(folder) as server:
        await keep_rows(server)
        keeper, postmaster = keeper_of(folder), postmaster_of(folder)
        kill(postmaster)
        await server.revive()
        assert await count_rows(server) == 1000
        assert keeper_of(folder) == keeper
        assert postmaster_of(folder) != postmaster


async def test_committed_rows_survive_a_killed_session(folder: Path) -> None:
    async with await start(folder) as server:
        await keep_rows(server)
        postmaster = postmaster_of(folder)
        connection = await asyncpg.connect(server.dsn)
        kill(await connection.fetchval("SELECT pg_backend_pid()"))
        with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError, OSError)):
            await connection.fetchval("SELECT 1")
        await server.revive()
        assert await count_rows(server) == 1000
        assert postmaster_of(folder) == postmaster


async def test_a_session_deep_in_a_query_does_not_hold_up_a_new_server(folder: Path) -> None:
    async with await start(folder) as server:
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
    async with asyncio.timeout(30):
        while await run(server, "SELECT state FROM pg_stat_activity WHERE pid = $1", session) != "active":
            await asyncio.sleep(0.02)


async def test_many_users_may_revive_the_server_at_once(folder: Path) -> None:
    async with await start(folder) as server:
        await keep_rows(server)
        users = [await (await User.start(folder)).holds() for _ in range(3)]
        kill(keeper_of(folder))
        kill(postmaster_of(folder))
        await asyncio.gather(*(user.revive() for user in users), *(server.revive() for _ in range(3)))
        await until(lambda: len(keepers_of(folder)) == 1)
        assert await count_rows(server) == 1000
        await asyncio.gather(*(user.leave() for user in users))


async def test_revive_leaves_a_server_that_runs_alone(folder: Path) -> None:
    async with await start(folder) as server:
        keeper, postmaster = keeper_of(folder), postmaster_of(folder)
        await server.revive()
        assert (keeper_of(folder), postmaster_of(folder)) == (keeper, postmaster)


async def test_a_released_user_can_come_back(folder: Path) -> None:
    server = await start(folder)
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


async def test_settings_reach_the_server(folder: Path) -> None:
    async with await ensure(folder, settings={**SMALL, "work_mem": "7MB"}, grace=0) as server:
        assert await run(server, "SHOW work_mem") == "7MB"
        assert await run(server, "SHOW shared_buffers") == "16MB"
        assert await run(server, "SHOW jit") == "off"


async def test_a_setting_that_opens_the_server_to_others_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Unusable, match="listen_addresses"):
        await ensure(tmp_path / "server", settings={"listen_addresses": "*"})
    assert not (tmp_path / "server").exists()


async def test_a_wrong_setting_is_an_error_that_says_why(folder: Path) -> None:
    with pytest.raises(Unusable, match="no_such_setting"):
        await ensure(folder, settings={"no_such_setting": "1"}, grace=0)


async def test_a_folder_name_with_spaces_and_other_letters_works(tmp_path: Path) -> None:
    folder = tmp_path / 'büro & "heim"\'s, 数据 %20'
    async with await start(folder) as server:
        assert await run(server, "SELECT 1") == 1
        assert await run(server.dsn_of("postgres"), "SELECT current_database()") == "postgres"
    await until_stopped(folder)


async def test_a_path_too_long_for_a_socket_works_and_is_shared(made_folder: Path, tmp_path: Path) -> None:
    folder = tmp_path / ("long" * 20) / ("longer" * 20) / "server"
    shutil.copytree(made_folder, folder)
    async with await start(folder) as server:
        user = await (await User.start(folder)).holds()
        assert user.dsn == server.dsn
        socket = Path(str(server.dsn_kwargs()["host"]))
        assert socket.stat().st_mode & 0o777 == 0o700
        await user.leave()
    await until_stopped(folder)
    assert not socket.exists()


async def test_a_socket_directory_of_a_stranger_is_refused(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (folder / "run").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Unusable, match="belongs to somebody else"):
        await start(folder)
    (folder / "run").unlink()
    (folder / "run").mkdir(mode=0o777)
    (folder / "run").chmod(0o777)
    with pytest.raises(Unusable, match="open to others"):
        await start(folder)


async def test_a_folder_reached_through_a_link_is_the_same_folder(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(folder)
    async with await start(folder) as server, await start(tmp_path / "link") as same:
        assert same.dsn == server.dsn


async def test_a_pid_file_that_names_another_process_by_now_is_no_obstacle(folder: Path) -> None:
    stale = [str(os.getpid()), str(folder / "data"), "1", "5432", str(folder / "run"), "", "", "ready"]
    (folder / "data" / "postmaster.pid").write_text("\n".join(stale) + "\n")
    (folder / "run").mkdir(mode=0o700)
    (folder / "run" / ".s.PGSQL.5432.lock").write_text("\n".join(stale) + "\n")
    async with await start(folder) as server:
        assert await run(server, "SELECT 1") == 1


async def test_a_file_in_the_place_of_the_folder_is_an_error_that_says_so(tmp_path: Path) -> None:
    (tmp_path / "server").touch()
    with pytest.raises(Unusable, match="not a folder"):
        await ensure(tmp_path / "server")


async def test_a_data_directory_that_is_none_is_left_alone(tmp_path: Path) -> None:
    folder = tmp_path / "server"
    (folder / "data").mkdir(parents=True)
    (folder / "data" / "mine").touch()
    with pytest.raises(Unusable, match="not a PostgreSQL data directory"):
        await ensure(folder)
    assert (folder / "data" / "mine").exists()


async def test_a_signal_to_the_terminal_does_not_reach_the_server(folder: Path) -> None:
    async with await start(folder) as server:
        keeper, postmaster = keeper_of(folder), postmaster_of(folder)
        assert os.getpgid(keeper) != os.getpgid(0)
        assert os.getpgid(postmaster) != os.getpgid(0)
        for number in (signal.SIGINT, signal.SIGHUP):
            os.kill(keeper, number)
        await server.revive()
        assert (keeper_of(folder), postmaster_of(folder)) == (keeper, postmaster)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
async def test_secrets_of_the_user_do_not_reach_the_keeper_or_the_server(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UPSTREAM_KEY", "sk-secret")
    async with await start(folder):
        for pid in (keeper_of(folder), postmaster_of(folder)):
            assert b"PATH=" in (environment := Path(f"/proc/{pid}/environ").read_bytes())
            assert b"sk-secret" not in environment
