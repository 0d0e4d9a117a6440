"""`overnight settings`: list the settings that can be changed while everything runs, set some, set some back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from overnight.cli import output
from overnight.cli.connect import Json
from overnight.cli.hosting import DatabaseUrl, DataDir, PostgresBin
from overnight.cli.serve import run_loop
from overnight.cli.silence import THE_DATABASE, Silence
from overnight.domain import events, settings_table
from overnight.domain.errors import BadRequest
from overnight.domain.setting import Setting, Value
from overnight.domain.settings_table import SETTINGS, TABLE
from overnight.settings import Settings, data_dir
from overnight.store import settings as stored
from overnight.store.pool import Store

TAKES_EFFECT = "Every process takes it over within ten seconds."

app = typer.Typer(help="The settings that can be changed while everything runs.", add_completion=False)


@dataclass(frozen=True, slots=True)
class Where:
    """The database that holds the settings, and how is told of it: the options given before a subcommand, or to it."""

    data: Path | None = None
    database_url: str | None = None
    postgres_bin: Path | None = None
    json: bool = False

    def within(self, given: Where) -> Where:
        """These options where they were given, else those of `given`."""
        return Where(
            self.data or given.data,
            self.database_url or given.database_url,
            self.postgres_bin or given.postgres_bin,
            self.json or given.json,
        )


@app.callback(invoke_without_command=True)
def settings(
    context: typer.Context,
    data: DataDir = None,
    database_url: DatabaseUrl = None,
    postgres_bin: PostgresBin = None,
    json: Json = False,
) -> None:
    """List the settings, or change some with `set` and `reset`; no process needs to be started again for it."""
    context.obj = Where(data, database_url, postgres_bin, json)
    if context.invoked_subcommand is None:
        _list(run_loop(_in_database(context.obj, stored.read)), json)


@app.command("set")
def set_(
    context: typer.Context,
    pairs: Annotated[list[str], typer.Argument(metavar="NAME VALUE", autocompletion=lambda: list(SETTINGS))],
    data: DataDir = None,
    database_url: DatabaseUrl = None,
    postgres_bin: PostgresBin = None,
    json: Json = False,
) -> None:
    """Set some settings: all of them, or none where one cannot be."""
    values = _read(pairs)
    where = Where(data, database_url, postgres_bin, json).within(context.obj)
    run_loop(_in_database(where, lambda store: stored.change(store, values)))
    _tell({settings_table.find(name): value for name, value in values.items()}, as_json=where.json)


@app.command("reset")
def reset(
    context: typer.Context,
    names: Annotated[list[str], typer.Argument(metavar="NAME", autocompletion=lambda: list(SETTINGS))],
    data: DataDir = None,
    database_url: DatabaseUrl = None,
    postgres_bin: PostgresBin = None,
    json: Json = False,
) -> None:
    """Set some settings back to their defaults."""
    try:
        found = [settings_table.find(name) for name in names]
    except BadRequest as e:
        raise typer.BadParameter(e.message) from None
    where = Where(data, database_url, postgres_bin, json).within(context.obj)
    run_loop(_in_database(where, lambda store: stored.reset(store, [setting.name for setting in found])))
    _tell({setting: setting.default for setting in found}, as_json=where.json)


def _tell(changed: Mapping[Setting, Value], *, as_json: bool) -> None:
    """Say what some settings are now."""
    if as_json:
        output.as_json([_as_json(setting, value) for setting, value in changed.items()])
        return
    for setting, value in changed.items():
        output.say(f"{setting.name} is {setting.shown(value)}.")
    output.say(TAKES_EFFECT)


def _read(pairs: list[str]) -> dict[str, Value]:
    values: dict[str, Value] = {}
    if len(pairs) % 2:
        raise typer.BadParameter(f"{pairs[-1]} has no value. Give pairs of NAME and VALUE.")
    for name, text in zip(pairs[::2], pairs[1::2], strict=True):
        if name in values:
            raise typer.BadParameter(f"{name} is given twice.")
        try:
            values[name] = settings_table.find(name).read(text)
        except BadRequest as e:
            raise typer.BadParameter(e.message) from None
    return values


def _list(found: Mapping[str, object], as_json: bool) -> None:
    values = settings_table.in_force(found)
    if as_json:
        output.as_json([_as_json(setting, values[setting.name]) for setting in TABLE])
        return
    for setting in TABLE:
        value = values[setting.name]
        now, by_default = setting.shown(value), setting.shown(setting.default)
        more = setting.bounds if value == setting.default else f"{setting.bounds}; by default {by_default}"
        output.entry(setting.name, f"{now} ({more})", setting.says, marked=value != setting.default)


def _as_json(setting: Setting, value: Value) -> dict[str, Any]:
    bounds = {} if setting.is_switch else {"least": setting.least, "most": setting.most, "unit": setting.unit}
    kind = "switch" if setting.is_switch else "number"
    shown = {"name": setting.name, "value": value, "default": setting.default, "type": kind}
    return {**shown, **bounds, "description": setting.says}


async def _in_database(where: Where, do: Callable[[Store], Awaitable[Any]]) -> Any:
    from overnight.database import opened_store
    from overnight.settings import prepare_data_dir

    events.set_up_logging("info")
    chosen = Settings(data_dir=data_dir(where.data), database_url=where.database_url, postgres_bin=where.postgres_bin)
    prepare_data_dir(chosen.data_dir)
    async with Silence(THE_DATABASE).counted(), opened_store(chosen) as store:
        return await do(store)
