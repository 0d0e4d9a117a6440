"""One setting: its name, type, bounds and default, and how its value is read, checked and shown."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeAlias

from overnight.domain.errors import InvalidParameter
from overnight.domain.limits import KIB, MIB

Value: TypeAlias = bool | int | None
"""Of a setting: a switch or a whole number. None, which only a default can be, is said in the setting's `unset`."""

_OF_UNIT: dict[str, Callable[[int], object]] = {
    "KiB": lambda n: n * KIB,
    "MiB": lambda n: n * MIB,
    "hours": lambda n: timedelta(hours=n),
    "days": lambda n: timedelta(days=n),
    "seconds": float,
}
_SWITCHES = {"on": True, "true": True, "yes": True, "1": True, "off": False, "false": False, "no": False, "0": False}
_NUMBER = re.compile(r"-?[0-9]{1,18}")


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting. `field` is what it decides in `Limits`; `least` and `most` are the bounds of a number."""

    name: str
    field: str
    default: Value
    says: str
    unit: str = ""
    least: int = 0
    most: int = 0
    zero_lifts: bool = False
    """0 stands for no limit at all."""
    unset: str = ""
    """What holds while a setting without a default has no value."""

    @property
    def is_switch(self) -> bool:
        return isinstance(self.default, bool)

    @property
    def bounds(self) -> str:
        """What may be given, for people."""
        return "on, off" if self.is_switch else f"{self.least:,} – {self.most:,}"

    def shown(self, value: Value) -> str:
        """A value for people."""
        if value is None:
            return self.unset
        if isinstance(value, bool):
            return "on" if value else "off"
        return f"{value:,} {self.unit}".rstrip()

    def check(self, value: object) -> Value:
        """Return a value that may be set. Raises InvalidParameter."""
        if self.is_switch and isinstance(value, bool):
            return value
        if not self.is_switch and type(value) is int and self.least <= value <= self.most:
            return value
        wanted = "on or off" if self.is_switch else f"a whole number from {self.least:,} to {self.most:,}"
        given = "on" if value is True else "off" if value is False else repr(value)[:80]
        raise InvalidParameter(f"{self.name} must be {wanted}, not {given}.", param=self.name)

    def read(self, text: str) -> Value:
        """Read a value from a command line or an environment. Raises InvalidParameter."""
        text = text.strip()
        if self.is_switch:
            return self.check(_SWITCHES.get(text.lower(), text))
        return self.check(int(text) if _NUMBER.fullmatch(text) else text)

    def as_limit(self, value: Value) -> object:
        """The value as `Limits` has it."""
        if isinstance(value, bool) or value is None:
            return value
        if value == 0 and self.zero_lifts:
            return None
        return _OF_UNIT[self.unit](value) if self.unit in _OF_UNIT else value
