"""What is said to a command that cannot be read: which option or argument it is about, in plain words."""

from __future__ import annotations

import re
from typing import Any

import typer

from overnight.cli.output import complain, say

UsageError: type[Exception] = typer.BadParameter.__mro__[1]
"""What Typer raises for all of them; it has no public name for it."""

_TOO_MANY = re.compile(r"^Got unexpected extra arguments?(?:\(s\))? \((.*)\)$")

_PLAIN = (
    ("Value error, ", ""),
    ("Input should be a valid integer, unable to parse string as an integer", "must be a whole number"),
    ("Input should be a valid number, unable to parse string as a number", "must be a number"),
    ("Input should be greater than or equal to", "must be at least"),
    ("Input should be less than or equal to", "must be at most"),
    ("Input should be", "must be"),
)
"""Words of the parser, and ours for them."""


def tell_usage(error: Any) -> None:
    """Say what is wrong and where to read on; a command that was given nothing shows its help."""
    if type(error).__name__ == "NoArgsIsHelpError":
        typer.echo(error.format_message(), err=True)
        return
    complain(in_plain_words(error))
    if error.ctx is not None:
        say(f"See: {error.ctx.command_path} --help")


def in_plain_words(error: Any) -> str:
    """The sentence for an error of Typer."""
    name = _name_of(error)
    if type(error).__name__ == "MissingParameter":
        return f"{name} is missing."
    if not isinstance(error, typer.BadParameter):
        says = str(error.format_message()).rstrip(".")
        return _TOO_MANY.sub(r"There is no place for \1", says) + "."
    says = str(error.message)
    for parsers, ours in _PLAIN:
        says = says.replace(parsers, ours)
    says = says.rstrip(".") + "."
    return f"{name}{' ' if says.startswith('must be') else ': '}{says}" if name else says


def _name_of(error: Any) -> str:
    """The option or argument that an error is about; empty where it does not say."""
    hint, param = getattr(error, "param_hint", None), getattr(error, "param", None)
    if hint:
        return hint if isinstance(hint, str) else " / ".join(hint)
    if param is None:
        return ""
    if param.param_type_name == "argument":
        return str(param.metavar or param.name.upper())
    return str(max(param.opts, key=len))
