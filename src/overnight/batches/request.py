"""The body of a create call, read strictly."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import msgspec

from overnight.domain.errors import InvalidJSON, InvalidParameter
from overnight.domain.fields import kept_seconds, only_known, read_strictly, text
from overnight.domain.targets import ENDPOINTS, TARGETS
from overnight.domain.window import NONE

LONGEST_WINDOW_HOURS = 168
MOST_METADATA = 16
LONGEST_METADATA_KEY = 64
LONGEST_METADATA_VALUE = 512

WINDOW = re.compile(r"([1-9][0-9]{0,2})h")
_FIELDS = frozenset(
    {
        "input_file_id", "endpoint", "completion_window", "metadata", "output_expires_after", "requests",
        "max_decoding_length", "max_context_length", "temperature", "top_p", "top_k",
    }
)  # fmt: skip
_OR_DIRECT = "; the requests may also be given in the call itself, as `requests`"
LARGEST = 2**31 - 1
WHOLE = {"max_decoding_length": 1, "max_context_length": 1, "top_k": 0}
"""Defaults that are whole numbers: the smallest that is allowed."""
FRACTIONS = {"temperature": 2, "top_p": 1}
"""Defaults that are numbers from 0 on: the largest that is allowed."""


cut_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
cut_requests = msgspec.json.Decoder(list[msgspec.Raw]).decode
"""Cut the members of a body, or its requests, out as they were written. Raise msgspec.MsgspecError."""


@dataclass(frozen=True, slots=True)
class NewBatch:
    """What a create call asks for. What was left out, or null, is None or empty.

    Either `input_file_id` and `endpoint` are given, or `requests`, whose first one says what the endpoint is.
    """

    input_file_id: str | None
    endpoint: str | None
    completion_window: str | None = None
    metadata: dict[str, str] = field(default_factory=dict)
    defaults: dict[str, Any] = field(default_factory=dict)
    """Of max_decoding_length, max_context_length, temperature, top_p and top_k those that were given."""
    output_expires_after: int | None = None
    """Seconds."""
    requests: Sequence[msgspec.Raw] | None = None
    """At least one, each as it was written; only where it begins and ends has been looked at."""

    @property
    def kept_for(self) -> timedelta | None:
        return None if self.output_expires_after is None else timedelta(seconds=self.output_expires_after)


def read_create(body: bytes) -> NewBatch:
    """Read the body of a create call.

    Raises InvalidJSON, UnknownParameter, MissingParameter or InvalidParameter, with the field in `param`.
    """
    members, requests = _read_object(body)
    given = only_known(members, _FIELDS)
    is_direct = "requests" in given
    if is_direct and "input_file_id" in given:
        says = "Give either `requests` or `input_file_id`: a batch is made of one of them."
        raise InvalidParameter(says, param="requests")
    return NewBatch(
        input_file_id=None if is_direct else text(given, "input_file_id", instead=_OR_DIRECT),
        endpoint=None if is_direct and "endpoint" not in given else _endpoint(given),
        completion_window=_window(given),
        metadata=_metadata(given.get("metadata", {})),
        defaults=_defaults(given),
        output_expires_after=kept_seconds(given, "output_expires_after"),
        requests=_requests(given["requests"], requests) if is_direct else None,
    )


def _read_object(body: bytes) -> tuple[dict[str, Any], msgspec.Raw | None]:
    """The members of the body, strictly read, and its requests as they were written.

    Requests are cut out before the strict reader makes objects of the rest, for there may be very many: where that
    succeeds, True stands in their place. Each of them is read strictly when it is checked.
    """
    try:
        requests = cut_members(body).get("requests")
    except (msgspec.MsgspecError, RecursionError):
        requests = None  # the strict reader says what is wrong
    if requests is not None and bytes(memoryview(requests)[:1]) == b"[":
        # Where the same bytes came before, this cuts out the wrong ones, and what is left is not what was sent.
        start, size = body.find(bytes(requests)), len(requests)
        with suppress(InvalidJSON):
            rest = read_strictly(body[:start] + b"true" + body[start + size :])
            if rest.get("requests") is True:
                return rest, requests
    return read_strictly(body), requests


def _requests(given: object, as_written: msgspec.Raw | None) -> list[msgspec.Raw]:
    says = "requests must be an array of at least one request."
    if as_written is None or not (given is True or type(given) is list):
        raise InvalidParameter(says, param="requests")
    try:
        requests = cut_requests(as_written)
    except msgspec.MsgspecError:
        raise InvalidParameter(says, param="requests") from None
    if not requests:
        raise InvalidParameter(says, param="requests")
    return requests


def _endpoint(given: Mapping[str, Any]) -> str:
    endpoint = text(given, "endpoint")
    if endpoint not in TARGETS:
        raise InvalidParameter(f"endpoint must be one of {ENDPOINTS}.", param="endpoint")
    return endpoint


def _window(given: Mapping[str, Any]) -> str | None:
    if "completion_window" not in given:
        return None
    window = text(given, "completion_window")
    if window == NONE:
        return window
    hours = WINDOW.fullmatch(window)
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
    for name, least in WHOLE.items():
        value = given.get(name, least)
        if type(value) is not int or not least <= value <= LARGEST:
            raise InvalidParameter(f"{name} must be a whole number from {least} to {LARGEST}.", param=name)
    for name, most in FRACTIONS.items():
        value = given.get(name, 0)
        if type(value) not in (int, float) or not 0 <= value <= most:
            raise InvalidParameter(f"{name} must be a number from 0 to {most}.", param=name)
    return {name: given[name] for name in (*WHOLE, *FRACTIONS) if name in given}
