"""The embedded server is shared by its users, is theirs alone, and lives as long as the last of them."""

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
from overnight.store.embedded import ensure, is_running
from overnight.store.folder import Folder
from tests.store.processes import (
    SMALL,
    User,
    count_rows,
    keep_rows,
    keeper_of,
    keepers_of,
    postmaster_of,
    run,
    start_server,
    until,
    until_stopped,
)


async def test_the_first_use_of_a_folder_makes_a_server_with_our_database(tmp_path: Path) -> None:
    folder = tmp_path / "not" / "yet" / "there"
    async with await start_server(folder) as server:
        assert await run(server, "SELECT current_database()") == "overnight"
        assert await run(server, "SHOW server_encoding") == "UTF8"
        assert await run(server, "SHOW data_checksums") == "on"
        assert await run(server, "SHOW fsync") == "on"
        assert await run(server, "SHOW listen_addresses") == ""
        assert await run(server, "SELECT 'ä' < 'b'") is False
    await until_stopped(folder)


async def test_both_forms_of_the_address_lead_to_the_database(folder: Path) -> None:
    async with await start_server(folder) as server:
        connection = await asyncpg.connect(**server.dsn_kwargs())
        assert await connection.fetchval("SELECT current_database()") == await run(server, "SELECT current_database()")
        await connection.close()


async def test_a_second_process_on_the_same_folder_shares_the_server(folder: Path) -> None:
    async with await start_server(folder) as server:
        user = await (await User.start(folder)).holds()
        assert user.dsn == server.dsn
        assert len(keepers_of(folder)) == 1
        await keep_rows(server)
        assert await run(user.dsn, "SELECT count(*) FROM kept") == 1000
        await user.leave()
        assert await count_rows(server) == 1000


async def test_the_server_outlives_the_user_that_started_it(folder: Path) -> None:
    first = await (await User.start(folder)).holds()
    async with await start_server(folder) as server:
        postmaster = postmaster_of(folder)
        await first.leave()
        assert await run(server, "SELECT 1") == 1
        assert postmaster_of(folder) == postmaster


async def test_the_server_stops_with_its_last_user(folder: Path) -> None:
    server = await start_server(folder)
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
    async with await start_server(folder) as server:
        assert await run(server, "SELECT 1") == 1
        assert await run(server.dsn_of("postgres"), "SELECT current_database()") == "postgres"
    await until_stopped(folder)


async def test_a_path_too_long_for_a_socket_works_and_is_shared(made_folder: Path, tmp_path: Path) -> None:
    folder = tmp_path / ("long" * 20) / ("longer" * 20) / "server"
    shutil.copytree(made_folder, folder)
    async with await start_server(folder) as server:
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
        await start_server(folder)
    (folder / "run").unlink()
    (folder / "run").mkdir(mode=0o777)
    (folder / "run").chmod(0o777)
    with pytest.raises(Unusable, match="open to others"):
        await start_server(folder)


async def test_a_folder_reached_through_a_link_is_the_same_folder(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(folder)
    async with await start_server(folder) as server, await start_server(tmp_path / "link") as same:
        assert same.dsn == server.dsn


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
    async with await start_server(folder) as server:
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
    async with await start_server(folder):
        for pid in (keeper_of(folder), postmaster_of(folder)):
            assert b"PATH=" in (environment := Path(f"/proc/{pid}/environ").read_bytes())
            assert b"sk-secret" not in environment
