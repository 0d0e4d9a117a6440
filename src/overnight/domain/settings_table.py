"""The settings that an operator may change while everything runs: name, type, bounds, default, and what each is for."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeAlias

from overnight.domain.errors import InvalidParameter, UnknownParameter
from overnight.domain.limits import KIB, MIB, Limits

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


TABLE = (
    Setting(
        "BATCH_ENABLED",
        "enabled",
        True,
        "Serve batches. Off: batch, file and upload routes answer 404, nothing starts, what runs finishes, and expiry "
        "and retention wait.",
    ),
    Setting(
        "BATCH_MODEL_CONCURRENCY",
        "per_model",
        None,
        "Requests of one model that may run at once; 0 pauses all models.",
        "requests",
        0,
        1_000_000,
        unset="what its servers take",
    ),
    Setting(
        "BATCH_INTERACTIVE_RESERVE",
        "interactive_reserve",
        0,
        "Slots of every model's cap that batches leave free. Without BATCH_MODEL_CONCURRENCY there is no cap.",
        "slots",
        0,
        1_000_000,
    ),
    Setting(
        "BATCH_QUEUED_ALERT_HOURS",
        "queued_alert",
        6,
        "How long a model may wait for a machine (503 with the code model_queued) before the log warns of it, once; 0: "
        "never.",
        "hours",
        0,
        8_760,
        zero_lifts=True,
    ),
    Setting(
        "BATCH_MAX_REQUESTS",
        "batch_requests",
        50_000,
        "Requests that one batch may hold. Does not hold for the local account.",
        "requests",
        1,
        100_000_000,
    ),
    Setting(
        "BATCH_MAX_BODY_MB",
        "create_body_bytes",
        32,
        "Largest body of a call that creates a batch.",
        "MiB",
        1,
        1_024,
    ),
    Setting("BATCH_MAX_FILE_MB", "file_bytes", 16_384, "Largest input file.", "MiB", 1, 1_048_576),
    Setting(
        "BATCH_MAX_LINE_KB",
        "line_bytes",
        4_096,
        "Longest line of an input file, and largest request of a create call.",
        "KiB",
        1,
        16_384,
    ),
    Setting(
        "BATCH_MAX_RESULT_KB",
        "result_bytes",
        4_096,
        "Largest reply of a model that is kept as the response of one request.",
        "KiB",
        1,
        16_384,
    ),
    Setting(
        "BATCH_MAX_RESULTS_MB_PER_BATCH",
        "results_bytes",
        8_192,
        "Responses that one batch may store in all. A response that does not fit any more, and every request "
        "after it, fails with result_too_large; 0 lifts the limit.",
        "MiB",
        0,
        16_777_216,
        zero_lifts=True,
    ),
    Setting(
        "BATCH_REQUEST_TIMEOUT_SECONDS",
        "request_seconds",
        3_600,
        "How long a server may take for one try at a request.",
        "seconds",
        1,
        86_400,
    ),
    Setting(
        "BATCH_COMPLETION_WINDOW_HOURS",
        "window",
        24,
        "How long a batch may start its requests if it asks for 24h, which OpenAI's clients always do, or for nothing; "
        "0 lifts the window.",
        "hours",
        0,
        168,
        zero_lifts=True,
    ),
    Setting(
        "BATCH_LONGEST_WINDOW_HOURS",
        "longest_window",
        168,
        "The longest window that a batch may ask for.",
        "hours",
        1,
        168,
    ),
    Setting(
        "BATCH_RETENTION_DAYS",
        "retention",
        7,
        "How long a batch that has ended is kept, with its results.",
        "days",
        1,
        3_650,
    ),
    Setting(
        "BATCH_FILE_RETENTION_DAYS",
        "file_retention",
        30,
        "How long an input file is kept that was uploaded without a life of its own.",
        "days",
        1,
        3_650,
    ),
    Setting(
        "BATCH_ONE_PER_FILE",
        "one_batch_per_file",
        True,
        "Let an input file have only one unfinished batch at a time.",
    ),
    Setting(
        "BATCH_MAX_ACTIVE_PER_USER",
        "batches_per_owner",
        10,
        "Unfinished batches that one owner may have. Does not hold for the local account.",
        "batches",
        1,
        1_000_000,
    ),
    Setting(
        "BATCH_MAX_QUEUED_REQUESTS_PER_USER",
        "requests_per_owner",
        100_000,
        "Unanswered requests that one owner may have in all unfinished batches. Does not hold for the local account.",
        "requests",
        1,
        1_000_000_000,
    ),
    Setting(
        "BATCH_FILE_UPLOADS_PER_HOUR",
        "uploads_per_hour",
        60,
        "Uploads that one owner may begin within an hour, those that fail included. Does not hold for the local "
        "account.",
        "uploads",
        1,
        1_000_000,
    ),
    Setting(
        "BATCH_FILES_MAX_TOTAL_MB_PER_USER",
        "file_bytes_per_owner",
        512,
        "Input files that one owner may keep, in all. Does not hold for the local account.",
        "MiB",
        1,
        1_073_741_824,
    ),
)

SETTINGS = {setting.name: setting for setting in TABLE}


def find(name: str) -> Setting:
    """The setting of a name. Raises UnknownParameter."""
    if name not in SETTINGS:
        raise UnknownParameter(f"There is no setting {name[:80]!r}; `overnight settings` lists them.", param=name[:80])
    return SETTINGS[name]


def in_force(stored: Mapping[str, object]) -> dict[str, Value]:
    """The value of every setting, from those that are stored.

    One that is not stored, or whose stored value this version does not take, has its default.
    """
    values: dict[str, Value] = {}
    for setting in TABLE:
        values[setting.name] = setting.default
        if stored.get(setting.name) is not None:
            try:
                values[setting.name] = setting.check(stored[setting.name])
            except InvalidParameter:
                pass
    return values


def apply(limits: Limits, values: Mapping[str, Value]) -> None:
    """Let limits say what the settings do; what no setting decides stays as it is."""
    for name, value in values.items():
        setattr(limits, SETTINGS[name].field, SETTINGS[name].as_limit(value))
