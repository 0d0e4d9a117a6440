"""One call of the API: sent, and sent again where that can help."""

from __future__ import annotations

import json
import logging
import math
import re
from collections.abc import Callable, Collection
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import httpx

from overnight.client.edge import Edge
from overnight.client.errors import ApiError, ConnectionFailed, OvernightError, TooManyRequests, of_response

RETRIES = 5
LONGEST_WAIT = 60.0
LONGEST_ASKED_FOR = 3_600.0
"""A server that asks for more patience than this is not waited for that long."""

LAST_TRY = 1.0
"""Seconds that a try has which begins when there is no time left."""

_NUMBER = re.compile(r"^\[Errno -?\d+\] ")

_log = logging.getLogger("overnight.client")


async def exchange(
    edge: Edge,
    make: Callable[[], httpx.Request],
    *,
    patient: bool = False,
    stream: bool = False,
    wanted: Collection[int] = (),
    ends: float | None = None,
) -> httpx.Response:
    """Send what `make` makes and return the response; beside 2xx, statuses in `wanted` are no error either.

    A full server (429) is tried again up to five times: after what its `Retry-After` says, else after 1, 2, 4 … 60 s.
    A `patient` call, which must be one that only reads or may be repeated, is tried again as often when the server
    is away or fails. At the moment `ends` of the edge's clock it is tried once more at the most, and no try waits for
    much longer.
    Raises ApiError or ConnectionFailed.
    """
    failure: ApiError | ConnectionFailed
    for tries in range(RETRIES + 1):
        request = make()
        if ends is not None:
            _hurry(request, max(ends - edge.now(), LAST_TRY))
        try:
            response = await edge.send(request, stream=stream)
            if response.is_success or response.status_code in wanted:
                return response
            await edge.read(response)
            failure, wait = of_response(response), _asked_for(response)
        except httpx.RequestError as e:
            failure, wait = disconnected(request, e), None
        if tries == RETRIES or not _may_help(failure, patient):
            raise failure
        wait = wait_before(tries) if wait is None else wait
        if ends is not None:
            left = ends - edge.now()
            if left <= 0:
                raise failure
            wait = min(wait, left)
        _log.warning("%s Trying again in %.0f s.", failure, wait)
        await edge.sleep(wait)
    raise AssertionError("the last try returns or raises")


def _hurry(request: httpx.Request, seconds: float) -> None:
    """Have a request wait for so long at the most for each thing that it waits for."""
    given = request.extensions["timeout"]
    request.extensions["timeout"] = {
        name: seconds if most is None else min(most, seconds) for name, most in given.items()
    }


def wait_before(tries: int) -> float:
    """Seconds to wait after so many failed retries: 1, 2, 4 … 60."""
    return min(2.0**tries, LONGEST_WAIT)


def disconnected(request: httpx.Request, error: httpx.RequestError) -> ConnectionFailed:
    """What to raise for a connection that could not be made or broke."""
    url = request.url.copy_with(userinfo=b"")
    if isinstance(error, httpx.ReadTimeout):
        seconds = request.extensions["timeout"]["read"]
        failure = ConnectionFailed(f"{request.method} {url}: no answer has come within {seconds:g} s.")
        failure.__cause__ = error
        return failure
    # The number of an error of the system says nothing beside its words.
    why = _NUMBER.sub("", str(error)).rstrip(".") or type(error).__name__
    failure = ConnectionFailed(f"{request.method} {url}: {why}.")
    failure.__cause__ = error
    return failure


def object_of(response: httpx.Response) -> dict[str, Any]:
    """The JSON object of a response. Raises OvernightError where it is something else."""
    return read_object(response.content, f"{response.request.method} {response.request.url.path}")


def read_object(text: bytes, call: str) -> dict[str, Any]:
    """The JSON object that a call was answered with. Raises OvernightError where it is something else."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise OvernightError(
            f"{call} was answered with something other than a JSON object: is the base URL that of an Overnight server?"
        )
    return found


def _may_help(failure: ApiError | ConnectionFailed, patient: bool) -> bool:
    if isinstance(failure, TooManyRequests):
        return not failure.final
    return patient and (isinstance(failure, ConnectionFailed) or (failure.status >= 500 and not failure.final))


def _asked_for(response: httpx.Response) -> float | None:
    """Seconds that a `Retry-After` asks for, written as a number or as a date; None where there is no sense in it."""
    given = response.headers.get("retry-after", "")
    try:
        seconds = float(given)
    except ValueError:
        try:
            moment = parsedate_to_datetime(given)
        except (ValueError, TypeError, IndexError, OverflowError):
            return None
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        seconds = (moment - datetime.now(UTC)).total_seconds()
    if not math.isfinite(seconds):
        return None
    return min(max(seconds, 0.0), LONGEST_ASKED_FOR)
