"""What a process is started with: read once, from the command line and the environment."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

import platformdirs

from overnight.domain.errors import Unusable
from overnight.domain.limits import Limits

DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 10900
LOAD_SECONDS = 7_200


class Part(StrEnum):
    """What a process does: answer calls, run requests, move batches on."""

    API = "api"
    WORKER = "worker"
    UPKEEP = "upkeep"


@dataclass(frozen=True, slots=True)
class Upstream:
    """A model server of somebody else's, spoken to in OpenAI's dialect."""

    url: str
    api_key: str | None = field(default=None, repr=False)
    slots: int | None = None
    """The most requests that it is given at once; None: as many as turn out to help, up to a bound for all."""
    lacks: frozenset[str] = frozenset()
    """What it cannot carry of a request's body, named as in `domain.bodies.carry`."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that one `overnight serve` is started with."""

    data_dir: Path
    host: str = DEFAULT_HOST
    port: int = DEFAULT_PORT
    hosts: frozenset[str] = frozenset()
    """Names, beside the loopback ones, under which callers may address it: those of a proxy in front."""
    database_url: str | None = field(default=None, repr=False)
    """Someone else's PostgreSQL; without it an embedded one runs under the data directory."""
    postgres_bin: Path | None = None
    models: tuple[str, ...] = ()
    upstreams: tuple[Upstream, ...] = ()
    parts: frozenset[Part] = frozenset(Part)
    limits: Limits = field(default_factory=Limits)
    incremental_dir: Path | None = None
    engine: str | None = None
    """`vllm` or `llama.cpp` for the local engines; None: what fits the machine and the model."""
    engine_args: tuple[str, ...] = ()
    """Flags that are passed through to the local engines."""
    vllm: Path | None = None
    """The command of vLLM, where it is neither beside ours nor on PATH."""
    engine_slots: int | None = None
    engine_threads: int | None = None
    engine_load_seconds: float = LOAD_SECONDS
    """A local engine that loads and has read nothing for so long is given up."""
    context_length: int | None = None
    """The longest context a local engine is to give one request."""
    grace_seconds: float = 20.0
    """How long running requests may take to finish once the process is told to stop."""


def data_dir(given: Path | None, environment: Mapping[str, str] = os.environ) -> Path:
    """Where Overnight keeps its data: as given, else `$OVERNIGHT_DATA_DIR`, else the user's data directory."""
    if given is not None:
        return given.expanduser().absolute()
    named = environment.get("OVERNIGHT_DATA_DIR")
    if named:
        return Path(named).expanduser().absolute()
    return Path(platformdirs.user_data_dir("overnight", appauthor=False))


def prepare_data_dir(folder: Path) -> None:
    """Make the data directory. Raises Unusable where that is not possible."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as e:
        raise Unusable(
            f"The data directory {folder} cannot be made ({e.strerror}). Name another with --data-dir."
        ) from None


def check_host(host: str) -> None:
    """Raise Unusable for an address that others can reach: without accounts everyone there would be the owner."""
    if host == "localhost":
        return
    try:
        if ipaddress.ip_address(host).is_loopback:
            return
    except ValueError:
        pass
    raise Unusable(
        f"Overnight has no accounts yet, so it answers on a loopback address only, not on {host}. "
        "Use --host 127.0.0.1 and let a tunnel, or a proxy with sign-in (see --allow-host), forward to it."
    )


def parse_parts(text: str) -> frozenset[Part]:
    """Read a list like `api,worker`. Raises Unusable for a part that does not exist."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in set(Part)]
    if unknown or not names:
        raise Unusable(f"--parts takes a list of {', '.join(Part)}; {text!r} is not one.")
    return frozenset(Part(name) for name in names)
