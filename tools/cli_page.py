"""Makes docs/reference/cli.md from the commands themselves: `python -m tools.cli_page` writes it."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any

from typer.main import get_command

from overnight.cli.app import EXIT_CODES, app

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "cli.md"

HEAD = """\
# The command line

This page is made from the commands (`src/overnight/cli`) by `python -m tools.cli_page`.

`overnight COMMAND --help` shows the same in the terminal. `overnight --install-completion` sets up completion for bash,
zsh, fish and PowerShell; `overnight --show-completion` prints it instead. With `--json`, which all commands but `serve`
have, a command prints JSON for programs on standard output: one document; `watch` and `submit` one a line. Hints,
progress and complaints are on standard error. Commands that talk to a server take its address from `--server`, else
from `$OVERNIGHT_SERVER`, and a key from `$OVERNIGHT_API_KEY`. Other users of a machine can see the arguments of a
process: give what holds a password by its variable, such as `$OVERNIGHT_DATABASE_URL`.

## Exit codes

| code | meaning |
|---|---|
"""

KINDS = {int: "NUMBER", float: "NUMBER", str: "TEXT", Path: "PATH"}


def commands() -> Iterator[tuple[str, Any]]:
    """Every command that does something, with its whole name, in the order of `overnight --help`."""
    yield from _below("overnight", get_command(app))


def _below(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    children = getattr(command, "commands", None)
    if not children or command.invoke_without_command:
        yield name, command
    for child, found in (children or {}).items():
        yield from _below(f"{name} {child}", found)


def page() -> str:
    """The whole page."""
    codes = "\n".join(f"| {code} | {meaning} |" for code, meaning in EXIT_CODES.items())
    return HEAD + codes + "\n" + "".join(_section(name, command) for name, command in commands())


def _section(name: str, command: Any) -> str:
    shown = [p for p in command.params if not getattr(p, "hidden", False) and p.name != "help"]
    arguments = [p for p in shown if p.param_type_name == "argument"]
    options = [p for p in shown if p.param_type_name == "option"]
    usage = " ".join([name, *(["[OPTIONS]"] if options else []), *(_placeholder(a) for a in arguments)])
    parts = [f"\n## {name}\n", f"```\n{usage}\n```\n", inspect.cleandoc(command.help or "") + "\n"]
    if shown:
        rows = [f"| {_name(p)} | {_says(p)} |" for p in (*arguments, *options)]
        parts.append("\n".join(["| | |", "|---|---|", *rows]) + "\n")
    return "\n".join(parts)


def _placeholder(argument: Any) -> str:
    word = argument.metavar or argument.name.upper()
    word = f"{word}..." if argument.nargs == -1 else word
    return word if argument.required else f"[{word}]"


def _name(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return f"`{_placeholder(parameter)}`"
    names = ", ".join(f"`{name}`" for name in (*parameter.opts, *parameter.secondary_opts))
    return names if parameter.is_flag else f"{names} `{_value(parameter)}`".replace("|", "\\|")


def _value(option: Any) -> str:
    kind = option.type_descriptor.annotation
    if option.metavar is None and isinstance(kind, type) and issubclass(kind, Enum):
        return "|".join(kind)
    return str(option.metavar or KINDS[kind])


def _says(parameter: Any) -> str:
    told = [parameter.help or ""]
    default = parameter.default
    if isinstance(default, int | float | str) and not isinstance(default, bool) and "default:" not in told[0]:
        told.append(f"(default: {default})")
    if parameter.required and parameter.param_type_name == "option":
        told.append("Required.")
    if getattr(parameter, "show_envvar", False) and parameter.envvar:
        told.append(f"(variable: `${parameter.envvar}`)")
    return " ".join(told).replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
    print(f"{PAGE.name} written; {len(list(commands()))} commands")
