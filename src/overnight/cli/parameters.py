"""Options that several commands share, and how their values are read."""

from __future__ import annotations

import math
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from overnight.client.errors import ApiError
from overnight.domain.errors import Unusable
from overnight.domain.settings_table import SETTINGS
from overnight.domain.targets import ENDPOINTS, TARGETS

_WINDOW = re.compile(r"[1-9][0-9]{0,5}h|none")


def _read_endpoint(given: str | None) -> str | None:
    if given is not None and given not in TARGETS:
        raise typer.BadParameter(f"{given!r} is none of {ENDPOINTS}.")
    return given


def _read_window(given: str) -> str:
    if not _WINDOW.fullmatch(given):
        raise typer.BadParameter(f"{given!r} is no number of hours, such as 24h.")
    # An operator may set it shorter, which only the server can say.
    longest = SETTINGS["BATCH_LONGEST_WINDOW_HOURS"].most
    if given != "none" and int(given[:-1]) > longest:
        raise typer.BadParameter(f"{given!r} is longer than a window can be, which is {longest}h.")
    return given


def check_options(refusal: ApiError) -> None:
    """Raise BadParameter where it is an option that a server refuses: whatever file comes with it, none is taken."""
    option = _OPTIONS.get(refusal.param or "")
    if option is not None:
        raise typer.BadParameter(refusal.message, param_hint=option) from None


Endpoint = Annotated[
    str | None,
    typer.Option(
        metavar="PATH",
        help="What the requests are for. (default: the url of the file's first line)",
        autocompletion=lambda: list(TARGETS),
        callback=_read_endpoint,
    ),
]
Window = Annotated[
    str, typer.Option(metavar="<n>h", help="How long the batch may start its requests.", callback=_read_window)
]
Parameters = Annotated[
    list[str] | None,
    typer.Option(
        "--param",
        metavar="NAME=VALUE",
        help="A default for requests that do not say, such as temperature=0.2: temperature, top_p, top_k,"
        " max_decoding_length, max_context_length. Repeatable.",
        autocompletion=lambda: [f"{name}=" for name in _NUMBERS],
    ),
]
Metadata = Annotated[
    list[str] | None, typer.Option("--metadata", metavar="NAME=VALUE", help="Your own notes on the batch. Repeatable.")
]

Ordered = Annotated[
    bool, typer.Option("--ordered", help="Write results in the order of the requests, not as they finished.")
]
LOG_LEVELS = ("debug", "info", "warning", "error")
LogLevel = Annotated[
    str,
    typer.Option(
        metavar="LEVEL", help="What the server logs: debug, info, warning, error.", autocompletion=lambda: LOG_LEVELS
    ),
]

_NUMBERS: dict[str, type[int] | type[float]] = {
    "temperature": float,
    "top_p": float,
    "top_k": int,
    "max_decoding_length": int,
    "max_context_length": int,
}
_OPTIONS = {"completion_window": "--window", "metadata": "--metadata", **dict.fromkeys(_NUMBERS, "--param")}
"""The option by which a field of a new batch is given."""


def read_parameters(given: list[str]) -> dict[str, Any]:
    """Read `name=value` pairs of the batch's defaults; the server checks their ranges."""
    found: dict[str, Any] = {}
    for pair in given:
        name, _, value = pair.partition("=")
        if name not in _NUMBERS:
            raise typer.BadParameter(f"{name!r} is none of {', '.join(_NUMBERS)}.", param_hint="--param")
        try:
            found[name] = _NUMBERS[name](value)
        except ValueError:
            raise typer.BadParameter(f"{value!r} is not a number.", param_hint="--param") from None
        if not math.isfinite(found[name]):
            raise typer.BadParameter(f"{value!r} is not a finite number.", param_hint="--param")
    return found


def read_metadata(given: list[str]) -> dict[str, str]:
    """Read `name=value` pairs."""
    found: dict[str, str] = {}
    for pair in given:
        name, equals, value = pair.partition("=")
        if not equals:
            raise typer.BadParameter(f"{pair!r} has no '='.", param_hint="--metadata")
        found[name] = value
    return found


def read_log_level(given: str) -> str:
    """A level of the log. Raises BadParameter for another word."""
    if given not in LOG_LEVELS:
        raise typer.BadParameter(f"{given!r} is none of {', '.join(LOG_LEVELS)}.", param_hint="--log-level")
    return given


def check_results(path: Path | None, *, json: bool) -> None:
    """Raise BadParameter or Unusable where results cannot go to `path`, or to standard output for None."""
    if path is not None:
        check_output(path)
    elif json:
        raise typer.BadParameter(
            "standard output has room for --json or the results: name a file.", param_hint="--output"
        )


@contextmanager
def written_to(path: Path, *, else_do: str = "") -> Iterator[None]:
    """Raise Unusable where the block cannot write to `path`, as where there is no room; it says what to do, too."""
    try:
        yield
    except OSError as e:
        raise Unusable(f"{path} cannot be written: {e.strerror or e}. {else_do}".rstrip()) from None


def check_output(path: Path) -> None:
    """Raise Unusable where results cannot be put at `path`: they replace a file, whole, in a folder that exists."""
    if path.exists() and not path.is_file():
        raise Unusable(f"{path} is not a file. Name a file for the results; it may be a new one.")
    folder = path.absolute().parent
    if not folder.is_dir():
        raise Unusable(f"The folder {folder} does not exist.")
    # Rights don't tell everything: only a file that is made shows that the results can be gathered beside `path`.
    trial = folder / f".{path.name}.{secrets.token_hex(19)}.part"
    try:
        trial.touch(exist_ok=False)
        trial.unlink()
    except OSError as e:
        raise Unusable(f"{path} cannot be written: {e.strerror}. Name another file for the results.") from None
