"""The embedded server runs for root and for ordinary users, with no more rights than it needs."""

from __future__ import annotations

import asyncio
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest
import pytest_asyncio

import overnight
from overnight.store.embedded import Embedded, ensure
from overnight.store.folder import Folder
from overnight.store.runas import AsRoot
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
    until,
    until_stopped,
)

root = pytest.mark.skipif(os.geteuid() != 0, reason="only root changes users")


def namespaces_are_allowed() -> bool:
    if sys.platform != "linux" or not shutil.which("unshare"):
        return False
    return subprocess.run(["unshare", "--user", "true"], capture_output=True, check=False).returncode == 0


namespaces = pytest.mark.skipif(not namespaces_are_allowed(), reason="user namespaces are not allowed here")


@pytest_asyncio.fixture
async def open_folder() -> AsyncIterator[Path]:
    """A folder that every user can reach, unlike those of tmp_path."""
    place = Path(tempfile.mkdtemp(prefix="overnight-test-"))
    place.chmod(0o755)
    yield place / "server"
    await until_stopped(place / "server")
    shutil.rmtree(place)


async def start(folder: Path, as_root: AsRoot = "auto") -> Embedded:
    return await ensure(folder, binaries=BINARIES, settings=SMALL, as_root=as_root, grace=0)


def owner_of(path: Path) -> str:
    return pwd.getpwuid(path.stat().st_uid).pw_name


def status_of(pid: int, field: str) -> list[str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(line.split()[1:] for line in lines if line.startswith(f"{field}:"))


def modes_above(folder: Path) -> list[tuple[int, int]]:
    return [(path.stat().st_mode, path.stat().st_uid) for path in folder.parents]


@root
@namespaces
async def test_root_runs_a_server_in_a_folder_that_nobody_else_can_enter(tmp_path: Path) -> None:
    (tmp_path / "private").mkdir(mode=0o700)
    folder = tmp_path / "private" / "server"
    before = modes_above(folder)
    async with await start(folder) as server:
        assert await run(server, "SELECT 1") == 1
        assert owner_of(folder / "data") == "root"
        assert modes_above(folder) == before
    await until_stopped(folder)


@root
@namespaces
async def test_the_server_of_root_has_no_capability(folder: Path) -> None:
    async with await start(folder, "namespace"):
        assert status_of(postmaster_of(folder), "CapEff") == ["0" * 16]


@root
async def test_without_namespaces_another_user_owns_the_data_alone(open_folder: Path) -> None:
    before = modes_above(open_folder)
    async with await start(open_folder, "user") as server:
        assert await run(server, "SELECT 1") == 1
        assert owner_of(open_folder / "data") in ("postgres", "nobody")
        assert owner_of(open_folder) == owner_of(open_folder / "users.lock") == "root"
        assert modes_above(open_folder) == before
        uids = status_of(postmaster_of(open_folder), "Uid")
        assert uids == [str((open_folder / "data").stat().st_uid)] * 4


@root
@namespaces
async def test_data_made_in_a_namespace_is_given_to_the_user_where_there_is_none(open_folder: Path) -> None:
    async with await start(open_folder, "namespace") as server:
        await keep_rows(server)
    await until_stopped(open_folder)
    async with await start(open_folder, "user") as server:
        assert await count_rows(server) == 1000
        owners = {path.lstat().st_uid for path in (open_folder / "data").rglob("*")}
        assert owners == {(open_folder / "data").stat().st_uid}
    await until_stopped(open_folder)
    async with await start(open_folder) as server:
        assert await count_rows(server) == 1000
        assert owner_of(open_folder / "data") != "root"


@root
async def test_without_namespaces_a_folder_that_only_root_can_enter_works_too(open_folder: Path) -> None:
    folder = private(open_folder) / "server"
    before = modes_above(folder)
    async with await start(folder, "user") as server:
        await keep_rows(server)
        killed = postmaster_of(folder)
        kill(keeper_of(folder))
        await server.revive()
        assert await count_rows(server) == 1000
        assert postmaster_of(folder) != killed
        assert modes_above(folder) == before
        assert owner_of(folder / "data") != "root"
        # It can read what root can, so nobody but root may connect, not even its own user.
        assert owner_of(Path(str(server.dsn_kwargs()["host"]))) == "root"
    await until_stopped(folder)


def private(folder: Path) -> Path:
    """Make a folder that only root can enter beside the folder."""
    path = folder.parent / "private"
    path.mkdir(mode=0o700)
    return path


@root
@pytest.mark.skipif(not shutil.which("setpriv"), reason="setpriv takes a capability from root")
async def test_where_root_may_nothing_the_folder_in_the_way_is_named(open_folder: Path) -> None:
    folder = private(open_folder) / "server"
    less = ("setpriv", "--bounding-set=-dac_override", "--inh-caps=-dac_override", sys.executable)
    user = await User.start(folder, *less, as_root="user")
    with pytest.raises(AssertionError, match=rf"Unusable: .*cannot use {folder.parent}, .*--data-dir.*--database-url"):
        await user.holds()
    await user.leave()
    assert folder.parent.stat().st_mode & 0o777 == 0o700
    await until_stopped(folder)


@root
async def test_a_killed_keeper_takes_the_server_of_another_user_with_it(open_folder: Path) -> None:
    async with await start(open_folder, "user") as server:
        await keep_rows(server)
        killed = postmaster_of(open_folder)
        kill(keeper_of(open_folder))
        await server.revive()
        assert await count_rows(server) == 1000
        assert postmaster_of(open_folder) != killed


def interpreter_for(user: str) -> tuple[str, dict[str, str]]:
    """Return a Python of our version that the user can run, with the environment that finds our packages."""
    packages = [str(Path(overnight.__file__).parent.parent), str(Path(asyncpg.__file__).parent.parent)]
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(packages)}
    mine = "{}.{}".format(*sys.version_info)
    check = f"import sys, asyncpg, overnight; sys.exit('{mine}' != '%d.%d' % sys.version_info[:2])"
    for python in (sys.executable, f"/usr/bin/python{mine}", f"/usr/local/bin/python{mine}"):
        try:
            subprocess.run([python, "-c", check], env=environment, user=user, group=65534, extra_groups=[], check=True)
        except (OSError, subprocess.CalledProcessError):
            continue
        return python, environment
    pytest.skip(f"the user {user} cannot run a Python {mine} that finds the packages")


@root
async def test_an_ordinary_user_runs_a_server(open_folder: Path) -> None:
    python, environment = interpreter_for("nobody")
    open_folder.mkdir()
    os.chown(open_folder, 65534, 65534)
    options: dict[str, Any] = {"env": environment, "user": "nobody", "group": 65534, "extra_groups": [], "cwd": "/"}
    users = [await User.start(open_folder, python, **options) for _ in range(2)]
    await asyncio.gather(*(user.holds() for user in users))
    assert owner_of(open_folder / "data") == "nobody"
    await until(lambda: len(keepers_of(open_folder)) == 1)
    kill(keeper_of(open_folder))
    await asyncio.gather(*(user.revive() for user in users))
    await asyncio.gather(*(user.leave() for user in users))


@root
async def test_root_shares_the_server_of_an_ordinary_user_and_leaves_nothing_of_its_own(open_folder: Path) -> None:
    python, environment = interpreter_for("nobody")
    open_folder.mkdir()
    os.chown(open_folder, 65534, 65534)
    async with await start(open_folder) as server:
        await keep_rows(server)
        user = await User.start(open_folder, python, env=environment, user="nobody", group=65534, extra_groups=[])
        assert (await user.holds()).dsn == server.dsn
        assert {owner_of(path) for path in open_folder.iterdir()} == {"nobody"}
    killed = keeper_of(open_folder)
    kill(killed)
    await user.revive()
    assert keeper_of(open_folder) != killed
    assert await count_rows(user.dsn) == 1000
    await user.leave()


@root
async def test_the_folder_of_another_user_is_refused_with_a_reason(open_folder: Path) -> None:
    python, environment = interpreter_for("nobody")
    Folder(open_folder).make()
    user = await User.start(open_folder, python, env=environment, user="nobody", group=65534, extra_groups=[])
    with pytest.raises(AssertionError, match=r"Unusable: .*users\.lock cannot be opened: Permission denied"):
        await user.holds()
    await user.leave()
