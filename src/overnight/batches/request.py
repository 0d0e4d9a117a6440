"""The body of a create call, read strictly."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from overnight.domain.errors import InvalidParameter
from overnight.domain.fields import kept_seconds, read_object, text
from overnight.domain.targets import ENDPOINTS, TARGETS

LONGEST_WINDOW_HOURS = 168
MOST_METADATA = 16
LONGEST_METADATA_KEY = 64
LONGEST_METADATA_VALUE = 512

_WINDOW = re.compile(r"([1-9][0-9]{0,2})h")
_FIELDS = frozenset(
    {
        "input_file_id", "endpoint", "completion_window", "metadata", "output_expires_after", "requests",
        "max_decoding_length", "max_context_length", "temperature", "top_p", "top_k",
    }
)  # fmt: skip
_LARGEST = 2**31 - 1
_WHOLE = {"max_decoding_length": 1, "max_context_length": 1, "top_k": 0}
"""Defaults that are whole numbers: the smallest that is allowed."""
_FRACTIONS = {"temperature": 2, "top_p": 1}
"""Defaults that are numbers from 0 on: the largest that is allowed."""


@dataclass(frozen=True, slots=True)
class NewBatch:
    """What a create call asks for. What was left out, or null, is None or empty."""

    input_file_id: str
    endpoint: str
    completion_window: str | None = None
    metadata: dict[str, str] = field(default_factory=dict)
    defaults: dict[str, Any] = field(default_factory=dict)
    """Of max_decoding_length, max_context_length, temperature, top_p and top_k those that were given."""
    output_expires_after: int | None = None
    """Seconds."""

    @property
    def window(self) -> timedelta | None:
        return None if self.completion_window is None else timedelta(hours=int(self.completion_window[:-1]))

    @property
    def kept_for(self) -> timedelta | None:
        return None if self.output_expires_after is None else timedelta(seconds=self.output_expires_after)


def read_create(body: bytes) -> NewBatch:
    """Read the body of a create call.

    Raises InvalidJSON, UnknownParameter, MissingParameter or InvalidParameter, with the field in `param`.
    """
    given = read_object(body, _FIELDS)
    if "requests" in given:
        raise InvalidParameter(
            "Requests in the create call are not available in this version. "
            "Upload them as a file with purpose 'batch' and name it in `input_file_id`.",
            param="requests",
        )
    return NewBatch(
        input_file_id=text(given, "input_file_id"),
        endpoint=_endpoint(given),
        completion_window=_window(given),
        metadata=_metadata(given.get("metadata", {})),
        defaults=_defaults(given),
        output_expires_after=kept_seconds(given, "output_expires_after"),
    )


def _endpoint(given: Mapping[str, Any]) -> str:
    endpoint = text(given, "endpoint")
    if endpoint not in TARGETS:
        raise InvalidParameter(f"endpoint must be one of {ENDPOINTS}.", param="endpoint")
    return endpoint


def _window(given: Mapping[str, Any]) -> str | None:
    if "completion_window" not in given:
        return None
    window = text(given, "completion_window")
    hours = _WINDOW.fullmatch(window)
    if hours is None or int(hours[1]) > LONGEST_WINDOW_HOURS:
        says = f"completion_window must be a number of hours from '1h' to '{LONGEST_WINDOW_HOURS}h', such as '24h'."
        raise InvalidParameter(says, param="completion_window")
    return window


def _metadata(given: object) -> dict[str, str]:
    if not isinstance(given, dict) or len(given) > MOST_METADATA:
        raise InvalidParameter(
            f"metadata must be an object of at most {MOST_METADATA} pairs of strings.", param="metadata"
        )
    for key, value in given.items():
        if len(key) > LONGEST_METADATA_KEY or "\0" in key:
            raise InvalidParameter(
                f"A key of metadata must be at most {LONGEST_METADATA_KEY} characters without a zero character.",
                param="metadata",
            )
        if type(value) is not str or len(value) > LONGEST_METADATA_VALUE or "\0" in value:
            raise InvalidParameter(
                f"The value of {key!r} in metadata must be a string of at most {LONGEST_METADATA_VALUE} characters "
                "without a zero character.",
                param="metadata",
            )
    return given


def _defaults(given: Mapping[str, Any]) -> dict[str, Any]:
    for name, least in _WHOLE.items():
        value = given.get(name, least)
        if type(value) is not int or not least <= value <= _LARGEST:
            raise InvalidParameter(f"{name} must be a whole number from {least} to {_LARGEST}.", param=name)
    for name, most in _FRACTIONS.items():
        value = given.get(name, 0)
        if type(value) not in (int, float) or not 0 <= value <= most:
            raise InvalidParameter(f"{name} must be a number from 0 to {most}.", param=name)
    return {name: given[name] for name in (*_WHOLE, *_FRACTIONS) if name in given}
