"""An interactive request as it was sent, checked like a line of a batch and passed on as it was written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from overnight.domain import strict
from overnight.domain.bodies import INTERACTIVE_BODIES
from overnight.domain.bodies.carry import Lacks, first_lacking_of_body, tell_lacking
from overnight.domain.errors import InvalidJSON, InvalidParameter, MissingParameter
from overnight.domain.strict import NotStrict
from overnight.domain.targets import Target


@dataclass(frozen=True, slots=True)
class Asked:
    """What was asked: of which model, by the name that was sent, and the body to pass on."""

    target: Target
    model: str
    body: bytes


def read_asked(target: Target, body: bytes) -> Asked:
    """Check a body. Raises InvalidJSON, MissingParameter and InvalidParameter."""
    try:
        given = strict.read(body)
    except NotStrict as e:
        says = e.message.replace("The line ", "The body ").replace(" of the line ", " of the body ")
        raise InvalidJSON(says) from None
    if type(given) is not dict:
        raise InvalidJSON("The body is not a JSON object.")
    model = given.get("model")
    for name in ("model", target.needs):
        if given.get(name) is None:
            raise MissingParameter(f"The field {name!r} is missing.", param=name)
    _check_fields(target, given)
    assert type(model) is str
    return Asked(target, model, body)


def _check_fields(target: Target, given: dict[str, Any]) -> None:
    wrong = INTERACTIVE_BODIES[target.url].check(given)
    if wrong is not None:
        # A zero byte is nothing that headers, logs and clients like to see.
        where = wrong.where[1:].replace("\0", "\ufffd")
        raise InvalidParameter(f"The field {where!r} {wrong.says}.", param=where)


def refuse_what_is_lacking(asked: Asked, lacks: Lacks) -> None:
    """Raise InvalidParameter for what the servers of the model would fail on or leave out."""
    found = first_lacking_of_body(asked.body, lacks) if lacks else None
    if found is not None:
        where, name = found
        raise InvalidParameter(tell_lacking(where, name, repr(asked.model[:200])), param=where)
