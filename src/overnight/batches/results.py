"""The results of a batch, request by request in the order of submission, whether they are there yet or not."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from uuid import UUID

import msgspec

from overnight.batches import find
from overnight.domain import ids, request_states, result
from overnight.domain.errors import InvalidParameter
from overnight.domain.limits import MIB
from overnight.domain.states import FINAL, Status
from overnight.store import results, rolls
from overnight.store.pool import Row, Session, Store
from overnight.store.results import Result

PAGE_BYTES = 8 * MIB
"""A page ends before the result that would pass this; one larger result comes alone."""

STEP_RESULTS = 32
"""So many results of usual size take about a millisecond: then others get their turn."""
STEP_BYTES = 256 * 1024

_encode = msgspec.json.encode


@dataclass(slots=True)
class Page:
    """Some results, each an object in JSON, and whether there are more."""

    data: list[bytes] = field(default_factory=list)
    first: str | None = None
    last: str | None = None
    has_more: bool = False
    size: int = 0

    def add(self, request_id: str, shown: bytes) -> bool:
        """Take one more result; False where the page is full without it."""
        if self.data and self.size + len(shown) > PAGE_BYTES:
            return False
        self.data.append(shown)
        self.size += len(shown)
        self.first = self.first or request_id
        self.last = request_id
        return True

    def as_json(self) -> bytes:
        """The public list; the caller asks for the next page with `after` = `last_id`."""
        ends = _encode({"first_id": self.first, "last_id": self.last, "has_more": self.has_more})
        return b'{"object":"list","data":[' + b",".join(self.data) + b"]," + ends[1:]


async def page(store: Store, owner: int, batch_id: str, *, limit: int, after: str | None) -> Page:
    """Return up to `limit` results of the requests behind `after`, the public id of a request of this batch.

    A batch whose input has not been accepted, yet or at all, has no requests. Raises BatchNotFound, and
    InvalidParameter where `after` is no request of the batch.
    """
    known = ids.read(ids.BATCH, batch_id)
    if known is None:
        raise find.not_found(batch_id)
    line = None if after is None else _line_of(known, after)
    async with store.session() as session:
        batch = await results.find_streams(session, owner, known, line)
        if batch is None:
            raise find.not_found(batch_id)
        if batch["status"] in FINAL:
            if after is not None and not batch["has_answer"]:
                raise _not_there()
            return await _answered(session, batch, 0 if line is None else line + 1, limit)
        # Each request of a batch that goes on is in its roll, the one before the page too.
        named = await rolls.read(session, batch["no"], line or 0, limit + 2) if _is_accepted(batch) else []
        if after is not None and (not named or named.pop(0)[0] != line):
            raise _not_there()
        return await _all(session, batch, named[: limit + 1], limit)


def _is_accepted(batch: Row) -> bool:
    """Whether it is known which requests the batch has; direct ones were checked before it was made."""
    return batch["in_progress_at"] is not None or batch["source"] == "direct"


def _line_of(batch_id: UUID, after: str) -> int | None:
    """The line that a request's id names; None where no request of the batch can have it."""
    line = ids.line_of(batch_id, after)
    return line if line is not None and line <= results.LAST_LINE else None


def _not_there() -> InvalidParameter:
    return InvalidParameter("`after` is not the id of one of this batch's requests.", param="after")


async def _answered(session: Session, batch: Row, first: int, limit: int) -> Page:
    """A page of a batch that has ended: every request has an answer."""
    found, count = await results.answers(session, batch["no"], first, limit + 1)
    shown = Page()
    for answer in found:
        if len(shown.data) == limit or not shown.add(ids.of_request(batch["id"], answer.line), _show(answer)):
            break
        await _give_way(shown, answer)
    shown.has_more = len(shown.data) < count
    return shown


async def _all(session: Session, batch: Row, named: Sequence[tuple[int, str]], limit: int) -> Page:
    """A page of a batch that goes on: its requests as the roll names them, with the answers that are there."""
    asked = named[:limit]
    shown = Page()
    if not asked:
        return shown
    # Answers are read last: what was answered in between is shown as answered.
    described = await results.describe_unanswered(session, batch["no"], [line for line, _ in asked])
    found, count = await results.answers(session, batch["no"], asked[0][0], limit, asked[-1][0])
    answer = next(found, None)
    for line, custom_id in asked:
        if answer is not None and answer.line == line:
            if not shown.add(ids.of_request(batch["id"], line), _show(answer)):
                break
            count -= 1
            await _give_way(shown, answer)
            answer = next(found, None)
        elif answer is None and count:
            break  # the answers of this line and those behind it were too large to come along
        elif not shown.add(
            ids.of_request(batch["id"], line), _show_unanswered(batch, line, custom_id, described[line])
        ):
            break
    shown.has_more = len(shown.data) < len(named)
    return shown


async def _give_way(shown: Page, answer: Result) -> None:
    if len(shown.data) % STEP_RESULTS == 0 or len(answer.text) > STEP_BYTES:
        await asyncio.sleep(0)


def _show(answer: Result) -> bytes:
    """The line as the result file has it, byte for byte, with two more fields."""
    status = request_states.of_answer(answer.code)
    return b'%b,"status":"%b","attempts":%d}' % (answer.text[:-1], status.encode(), answer.tries)


def _show_unanswered(batch: Row, line: int, custom_id: str, known: Row) -> bytes:
    ends_as = None if batch["ends_as"] is None else Status(batch["ends_as"])
    has_failed = known["code"] is not None
    status = request_states.of_unanswered(ends_as, is_running=known["is_running"], has_failed=has_failed)
    return _encode(
        {
            "id": ids.of_request(batch["id"], line),
            "custom_id": custom_id,
            "response": None,
            "error": None if known["is_running"] else _error(ends_as, known),
            "status": status.value,
            "attempts": known["tries"] + known["is_running"],
        }
    )


def _error(ends_as: Status | None, known: Row) -> dict[str, str | int] | None:
    """The last error of a request that waits to be tried again; what the end of its batch makes of one that doesn't."""
    if known["code"] is not None and ends_as in (None, Status.EXPIRED):
        error = {"code": known["code"], "message": known["message"]}
        return error if known["status"] is None else {**error, "status": known["status"]}
    if ends_as is None:
        return None
    code, message = result.never_ran(ends_as, known["tries"])
    return {"code": code, "message": message}
