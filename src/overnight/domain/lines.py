"""The strict check of an input file, line by line as it streams."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from overnight.domain import strict
from overnight.domain.bodies import BODIES
from overnight.domain.limits import LONGEST_CUSTOM_ID, MOST_PROBLEMS, Limits
from overnight.domain.strict import NotStrict
from overnight.domain.targets import ENDPOINTS, TARGETS

CHECKS = 2
"""Raised whenever the check below refuses more than before, so that files checked earlier are checked again."""

_BOM = b"\xef\xbb\xbf"
_FIELDS = frozenset({"custom_id", "method", "url", "body"})
_LINE_EXTRAS = len(_BOM) + len(b"\r")
"""Bytes that may come with a line beside its line end and do not count."""
STEP_LINES = 256
"""Checking this many lines of usual size takes about 2 ms."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with an input: `line` is 0-based, None where it is about the whole file."""

    code: str
    line: int | None
    message: str
    param: str | None = None


class LineError(Exception):
    """A line is refused."""

    def __init__(self, code: str, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.param = param


class Splitter:
    """Cuts a stream of bytes into its lines; holds at most one line of the longest allowed size."""

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._rest = bytearray()
        self._too_long = False
        self._number = 0

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes | None]]:
        """Yield (0-based number, line without its end) of each whole line that is not blank.

        A line over the limit is yielded as None; its bytes are dropped while they come.
        """
        pieces = data.split(b"\n")
        for piece in pieces[:-1]:
            whole: bytes | None = piece
            if self._rest or self._too_long:
                self._hold(piece)
                whole = None if self._too_long else bytes(self._rest)
                self._rest.clear()
                self._too_long = False
            yield from self._line(whole)
        self._hold(pieces[-1])

    def end(self) -> Iterator[tuple[int, bytes | None]]:
        """Yield the last line where the stream ended without a line end."""
        if self._rest or self._too_long:
            yield from self._line(None if self._too_long else bytes(self._rest))
            self._rest.clear()

    def _hold(self, piece: bytes) -> None:
        if self._too_long or len(self._rest) + len(piece) > self._longest + _LINE_EXTRAS:
            self._too_long = True
            self._rest.clear()
        else:
            self._rest += piece

    def _line(self, line: bytes | None) -> Iterator[tuple[int, bytes | None]]:
        number = self._number
        self._number += 1
        if line is not None:
            if number == 0 and line.startswith(_BOM):
                line = line[len(_BOM) :]
            if line.endswith(b"\r"):
                line = line[:-1]
            if len(line) > self._longest:
                line = None
            elif not line or line.isspace():
                return
        yield number, line


@dataclass(slots=True)
class FileCheck:
    """Checks an input file while its bytes arrive. Feed it, end it, then read what it found."""

    limits: Limits
    lines: int = 0
    """Requests, that is lines that are not blank."""
    problems: list[Problem] = field(default_factory=list)
    problem_count: int = 0
    _splitter: Splitter = field(init=False)
    _hashes: array[int] = field(default_factory=lambda: array("q"))
    _numbers: array[int] = field(default_factory=lambda: array("q"))
    _repeats_not_named: int = 0

    def __post_init__(self) -> None:
        self._splitter = Splitter(self.limits.line_bytes)

    @property
    def is_whole(self) -> bool:
        """False where the file holds more requests than any batch may: then repeated ids are not looked for."""
        return self.lines <= self.limits.intake

    def feed(self, data: bytes) -> None:
        """Check the lines that `data` completes."""
        for _ in self.steps(data):
            pass

    def steps(self, data: bytes) -> Iterator[None]:
        """Check the lines that `data` completes, and yield now and then so that others get their turn."""
        for number, line in self._splitter.feed(data):
            self._check(number, line)
            if self.lines % STEP_LINES == 0:
                yield

    def end(self) -> None:
        """Check what is left, and that the file holds a request at all."""
        for number, line in self._splitter.end():
            self._check(number, line)
        if self.lines == 0:
            self.note(Problem("empty_file", None, "The file holds no request; every line of it is blank."))

    def _check(self, number: int, line: bytes | None) -> None:
        self.lines += 1
        if line is None:
            most = self.limits.line_bytes
            self.note(Problem("line_too_long", number, f"The line is longer than {most:,} bytes."))
            return
        try:
            request = parse(line)
        except LineError as e:
            self.note(Problem(e.code, number, e.message, e.param))
            return
        if self.is_whole:
            self._hashes.append(hash(request["custom_id"]))
            self._numbers.append(number)

    def note(self, problem: Problem) -> None:
        """Keep a problem; past the most that are shown only their number is kept."""
        self.problem_count += 1
        if len(self.problems) < MOST_PROBLEMS:
            self.problems.append(problem)

    def suspects(self) -> set[int]:
        """Lines whose `custom_id` may have been seen before: those that share a 64-bit hash.

        Equal hashes are almost always equal ids; `confirm` reads those lines once more to be exact. Of more
        repeated ids than are shown the others are only counted, so that the answer stays small. Call it once;
        it sorts, and may take a second for a million lines.
        """
        hashes = np.array(self._hashes, dtype=np.int64)
        numbers = np.array(self._numbers, dtype=np.int64)
        order = np.argsort(hashes, kind="stable")
        in_order = hashes[order]
        repeats = np.flatnonzero(in_order[1:] == in_order[:-1]) + 1
        # Where equal hashes lie side by side in the order of their lines, the first of them is the one repeated.
        firsts = np.searchsorted(in_order, in_order[repeats], side="left")
        named = np.argsort(numbers[order[repeats]])[:MOST_PROBLEMS]
        self._repeats_not_named = len(repeats) - len(named)
        return set(numbers[order[np.concatenate((repeats[named], firsts[named]))]].tolist())

    def confirm(self, suspects: set[int]) -> Callable[[bytes], None]:
        """Return what to feed the whole file to a second time, so that repeated ids are noted with both lines.

        Fed with nothing (`b""`) it ends.
        """
        first_seen: dict[str, int] = {}
        splitter = Splitter(self.limits.line_bytes)

        def feed(data: bytes) -> None:
            for number, line in splitter.feed(data) if data else splitter.end():
                if number in suspects and line is not None:
                    custom_id = parse(line)["custom_id"]
                    before = first_seen.setdefault(custom_id, number)
                    if before != number:
                        self.note(_repeated_id(custom_id, number, before))
            if not data:
                self.problem_count += self._repeats_not_named

        return feed


def _repeated_id(custom_id: str, number: int, before: int) -> Problem:
    says = f"custom_id {shown(custom_id)} was used before, on line {before + 1}."
    return Problem("duplicate_custom_id", number, says, "custom_id")


def shown(custom_id: str) -> str:
    """A caller's id as messages show it: quoted, and cut where it is long."""
    return repr(custom_id if len(custom_id) <= 80 else custom_id[:77] + "...")


def parse(line: bytes) -> dict[str, Any]:
    """Parse one line strictly and check every field that does not depend on the batch.

    Raises LineError.
    """
    try:
        request = strict.read(line)
    except NotStrict as e:
        raise LineError(e.code, e.message) from None
    if type(request) is not dict:
        raise LineError("invalid_json_line", "The line is not a JSON object.")
    _check_fields(request)
    _check_body(request, TARGETS[request["url"]].needs)
    return request


def _check_fields(request: dict[str, Any]) -> None:
    if not request.keys() >= _FIELDS:
        missing = next(name for name in ("custom_id", "method", "url", "body") if name not in request)
        raise LineError("missing_required_parameter", f"The field {missing!r} is missing.", missing)
    if len(request) > len(_FIELDS):
        extra = next(name for name in request if name not in _FIELDS)[:80]
        raise LineError("invalid_parameter", f"The field {extra!r} is not known.", extra.replace("\0", "\ufffd"))
    custom_id = request["custom_id"]
    if type(custom_id) is not str or not 1 <= len(custom_id) <= LONGEST_CUSTOM_ID:
        says = f"custom_id must be a string of 1 to {LONGEST_CUSTOM_ID} characters."
        raise LineError("invalid_parameter", says, "custom_id")
    if request["method"] != "POST":
        raise LineError("invalid_method", f"The method of {shown(custom_id)} must be 'POST'.", "method")
    url = request["url"]
    if type(url) is not str or url not in TARGETS:
        says = f"The url of {shown(custom_id)} must be one of {ENDPOINTS}."
        raise LineError("invalid_url", says, "url")


def _check_body(request: dict[str, Any], needs: str) -> None:
    body = request["body"]
    custom_id = request["custom_id"]
    if type(body) is not dict:
        raise LineError("invalid_parameter", f"The body of {shown(custom_id)} must be an object.", "body")
    model = body.get("model")
    if model is None:
        says = f"The body of {shown(custom_id)} names no model."
        raise LineError("missing_required_parameter", says, "body.model")
    if type(model) is not str or not model:
        says = f"The model of {shown(custom_id)} must be a string that is not empty."
        raise LineError("invalid_parameter", says, "body.model")
    if model == "auto" or model.startswith("auto-"):
        says = f"{shown(custom_id)} names {model[:80]!r}; batches need the name of a model."
        raise LineError("auto_model_not_allowed", says, "body.model")
    stream = body.get("stream")
    if stream is True:
        says = f"{shown(custom_id)} asks for a stream; results of a batch are not streamed."
        raise LineError("streaming_not_supported", says, "body.stream")
    if stream is not None and stream is not False:
        says = f"The stream of {shown(custom_id)} must be left out, null or false."
        raise LineError("invalid_parameter", says, "body.stream")
    given = body.get(needs)
    if given is None:
        says = f"The body of {shown(custom_id)} has no {needs!r}."
        raise LineError("missing_required_parameter", says, f"body.{needs}")
    wrong = BODIES[request["url"]].check(body)
    if wrong is not None:
        where, says = wrong.where.replace("\0", "\ufffd"), wrong.says
        says = f"In the body of {shown(custom_id)} the field {where[1:]!r} {says}."
        raise LineError("invalid_parameter", says, f"body{where}")
