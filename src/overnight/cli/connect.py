"""How commands reach a server."""

from __future__ import annotations

import os
from typing import Annotated

import httpx
import typer

from overnight.cli.silence import Silence
from overnight.client import Client
from overnight.settings import DEFAULT_HOST, DEFAULT_PORT

DEFAULT_SERVER = f"http://{DEFAULT_HOST}:{DEFAULT_PORT}"
THE_SERVER = "the server has not answered"
ANSWERED_WITHIN = 60.0
"""Seconds within which any server answers that is well."""
WORKED_WITHIN = 600.0
"""The same where it may have to read or to write a large file before it answers."""

Server = Annotated[
    str | None,
    typer.Option(
        "--server", metavar="URL", help=f"Address of the server. (default: $OVERNIGHT_SERVER or {DEFAULT_SERVER})"
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]


def read_id(given: str | None) -> str | None:
    """An id that can be asked for. Raises BadParameter for an empty one, as of a shell's variable that is not set."""
    if given is not None and not given.strip():
        raise typer.BadParameter("the id is empty.")
    return given


BatchId = Annotated[
    str, typer.Argument(metavar="BATCH", help="Id of the batch, as `overnight list` shows it.", callback=read_id)
]


def server_address(given: str | None) -> str:
    """The server that a command is for: as given, else `$OVERNIGHT_SERVER`, else the default address.

    Raises BadParameter for what is no address.
    """
    return checked_address(given or os.environ.get("OVERNIGHT_SERVER") or DEFAULT_SERVER)


def checked_address(given: str) -> str:
    """An address that can be called. Raises BadParameter for what is none."""
    try:
        url = httpx.URL(given if "://" in given else f"http://{given}")
    except httpx.InvalidURL:
        url = httpx.URL("")
    if url.scheme not in ("http", "https") or not url.host:
        raise typer.BadParameter(
            f"{given!r} is no address of a server, such as {DEFAULT_SERVER}.", param_hint="--server"
        )
    return given


def client(given: str | None, *, within: float | None = None, silence: Silence | None = None) -> Client:
    """A client for the server that a command is for; the key comes from `$OVERNIGHT_API_KEY`.

    A server that says nothing is waited for so many seconds; people hear of it before.
    """
    within = within or ANSWERED_WITHIN
    return Client(server_address(given), within, on_silence=silence or Silence(THE_SERVER, most=within))
