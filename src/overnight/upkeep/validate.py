"""Checks the files of new batches and cuts them into blocks: the batch starts, or is refused with all its problems."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from overnight.batches.check import BatchCheck, with_total
from overnight.catalog.find import is_known, lacks_of, resolve
from overnight.domain import events, ids
from overnight.domain.errors import FileNotFound
from overnight.domain.limits import Limits
from overnight.domain.lines import CHECKS, FileCheck, Problem, Splitter
from overnight.domain.plan import Block, Planner
from overnight.domain.prefix import group_of
from overnight.domain.targets import TARGETS
from overnight.files import find as find_file
from overnight.files.shape import StoredFile, problem_as_json
from overnight.store import batches
from overnight.store.answers import Fenced
from overnight.store.files import FileGone, read_input
from overnight.store.pool import Row, Store
from overnight.store.served import Served, list_served
from overnight.upkeep.begin import Begin
from overnight.upkeep.deps import Upkeep
from overnight.upkeep.ingest import Ingest, Lost
from overnight.upkeep.put_off import PutOff

Lines: TypeAlias = Iterator[tuple[int, bytes | None]]


class Validate:
    """Takes one new batch at a time; one that was left in the middle is checked from the start."""

    def __init__(self, deps: Upkeep, planner: Callable[[], Planner] = Planner) -> None:
        self._deps = deps
        self._planner = planner
        self._put_off = PutOff()

    async def round(self) -> bool:
        """Check one batch, if there is one; while no model is served, batches wait."""
        store, worker = self._deps.store, self._deps.life.no
        served = await list_served(store)
        skipped = self._put_off.batches()
        row = await batches.claim_validating(store, worker, self._deps.only(), skipped=skipped, may_read=bool(served))
        if row is None:
            return False
        checking: _Checking | Begin = _Checking(store, self._deps.limits, worker, row, served, self._planner())
        if row["source"] == "direct":
            checking = Begin(store, worker, row, served)
        try:
            with self._put_off.unless_done(row["no"]):
                await checking.run()
        except Lost:
            pass
        except Fenced:
            return False  # the next heartbeat begins a new life
        return True


class _Checking:
    """One batch while it is checked."""

    def __init__(
        self, store: Store, limits: Limits, worker: int, row: Row, served: Sequence[Served], planner: Planner
    ) -> None:
        self._store = store
        self._planner = planner
        # The limits of today, but for what the batch was promised when it was created.
        self._limits = copy.copy(limits)
        self._limits.line_bytes = row["line_bytes"] or limits.line_bytes
        self._most_requests = row["most_requests"] or limits.intake
        self._worker = worker
        self._row = row
        self._ingest = Ingest(store, worker, row["no"])
        target = TARGETS[row["endpoint"]].name
        self._check = BatchCheck(
            row["endpoint"],
            lambda name: resolve(served, name, target),
            self._limits.line_bytes,
            lacks_of=lambda model: lacks_of(served, model),
            is_known=lambda name: is_known(served, name),
        )

    async def run(self) -> None:
        """Bring the batch to its next state. Raises Lost or Fenced where that is not ours to do any more."""
        await self._ingest.clear()
        try:
            await self._read_file()
        except (FileGone, FileNotFound):
            self._check.problems.clear()
            self._check.problem_count = 0
            self._note("file_not_found", "The input file was deleted or expired before it was read.")
        check = self._check
        if check.problem_count == 0 and check.model is not None:
            await self._ingest.start(check.model, check.lines)
            events.tell("batch_started", batch=self._public_id, requests=check.lines, model=check.model)
        else:
            await self._refuse()

    async def _read_file(self) -> None:
        row = self._row
        file = await find_file.get(self._store, row["owner"], ids.show(ids.FILE, row["input_file_id"]))
        if file.problem_count:
            self._check.problems += file.problems
            self._check.problem_count += file.problem_count
        elif file.lines > self._most_requests:
            most = self._most_requests
            self._note("too_many_requests", f"The file holds {file.lines:,} requests; a batch may hold {most:,}.")
        elif file.checks >= CHECKS or await self._passes_new_checks(file):
            await self._read_lines(file)

    async def _passes_new_checks(self, file: StoredFile) -> bool:
        """Make the strict check again of a file that came before the check was as strict as it is now."""
        check = FileCheck(self._limits)
        async for piece in read_input(self._store, file.no):
            check.feed(piece)
            await asyncio.sleep(0)
        check.end()
        suspects = check.suspects()
        if suspects:
            confirm = check.confirm(suspects)
            async for piece in read_input(self._store, file.no):
                confirm(piece)
                await asyncio.sleep(0)
            confirm(b"")
        self._check.problems += check.problems
        self._check.problem_count += check.problem_count
        return check.problem_count == 0

    async def _read_lines(self, file: StoredFile) -> None:
        splitter = Splitter(self._limits.line_bytes)
        self._planner.expect(file.lines)
        async for piece in read_input(self._store, file.no):
            await self._store_blocks(self._plan(splitter.feed(piece)))
        await self._store_blocks(self._plan(splitter.end()))
        if self._check.problem_count == 0:
            for block in self._planner.finish():
                await self._store_blocks([block])
        if self._check.lines == 0:
            self._note("empty_file", "The file holds no request; every line of it is blank.")

    def _plan(self, lines: Lines) -> list[Block]:
        """Check and plan some lines; a batch with a problem will not run, so nothing of it is planned any more."""
        check = self._check
        read, add, name = check.read, self._planner.add, self._ingest.name
        full: list[Block] = []
        for number, line in lines:
            request = read(number, line)
            if request is not None and line is not None and check.problem_count == 0:
                name(number, request.custom_id)
                full += add(number, line, request.custom_id, group_of(request))
        return full

    async def _store_blocks(self, full: list[Block]) -> None:
        for block in full:
            assert self._check.model is not None
            await self._ingest.add(block, self._check.model)
        await asyncio.sleep(0)

    async def _refuse(self) -> None:
        await self._ingest.clear()
        count = self._check.problem_count
        problems = with_total(self._check.problems, count)
        first = problems[0]
        says = first.message if count == 1 else f"{first.message} (the first of {count:,} problems)"
        async with self._ingest.held() as session:
            errors = [problem_as_json(problem) for problem in problems]
            if not await batches.refuse_if_validating(session, self._row["no"], self._worker, first.code, says, errors):
                raise Lost
        events.tell("batch_refused", batch=self._public_id, problems=count)

    def _note(self, code: str, message: str) -> None:
        self._check.note(Problem(code, None, message, "input_file_id"))

    @property
    def _public_id(self) -> str:
        return ids.show(ids.BATCH, self._row["id"])
