"""Starts batches of direct requests, which were checked whole when they were created."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from overnight.batches.check import BatchCheck, with_total
from overnight.catalog.find import resolve
from overnight.domain import events, ids
from overnight.domain.limits import MOST_PROBLEMS
from overnight.domain.lines import Problem
from overnight.domain.targets import TARGETS
from overnight.files.shape import problem_as_json
from overnight.store import batches, blocks
from overnight.store.pool import Row, Session, Store
from overnight.store.served import Served
from overnight.upkeep.ingest import Ingest, Lost

TURN_REQUESTS = 256


@dataclass(frozen=True, slots=True)
class Begin:
    """One direct batch. Whatever happens to it here happens in one transaction, so that nothing is left half done."""

    store: Store
    worker: int
    row: Row
    served: Sequence[Served]

    async def run(self) -> None:
        """Bring the batch to its next state. Raises Lost or Fenced where that is not ours to do any more."""
        row, count, model = self.row, 0, None
        async with Ingest(self.store, self.worker, row["no"]).held() as session:
            found = await self._look_up(session) if row["unresolved"] else {}
            lacking = [name for name, model in found.items() if model is None]
            if lacking:
                count = await self._refuse(session, lacking)
            else:
                model = await self._start(session, {name: known for name, known in found.items() if known})
        batch = ids.show(ids.BATCH, row["id"])
        if lacking:
            events.tell("batch_refused", batch=batch, problems=count)
        else:
            events.tell("batch_started", batch=batch, requests=row["total"], model=model or "several")

    async def _look_up(self, session: Session) -> dict[str, str | None]:
        """The names that the requests use, with the models that they stand for now."""
        names = await blocks.list_models(session, self.row["no"])
        return {name: self._resolve(name) for name in names}

    def _resolve(self, name: str) -> str | None:
        return resolve(self.served, name, TARGETS[self.row["endpoint"]].name)

    async def _start(self, session: Session, found: dict[str, str]) -> str | None:
        """Let it run, and return its model where it is one."""
        no = self.row["no"]
        model: str | None = self.row["model"]
        if found:
            await blocks.rename_models(session, no, found)
            models = set(found.values())
            model = models.pop() if len(models) == 1 else None
        if not await batches.start_if_validated(session, no, self.worker, model, self.row["total"]):
            raise Lost
        return model

    async def _refuse(self, session: Session, lacking: Sequence[str]) -> int:
        """End the batch with all problems, in the order of its requests, and return how many there are."""
        check = BatchCheck(self.row["endpoint"], self._resolve, longest=0, many_models=True)
        found: list[Problem] = []
        async for number, request in blocks.read_of_models(session, self.row["no"], lacking):
            check.problems.clear()
            check.read(number, request)
            found += check.problems
            if check.lines % TURN_REQUESTS == 0:
                found = _first(found)
                await asyncio.sleep(0)
        count = check.problem_count
        problems = with_total(_first(found), count)
        says = problems[0].message if count == 1 else f"{problems[0].message} (the first of {count:,} problems)"
        while await blocks.delete_some(session, self.row["no"]):
            pass
        errors = [problem_as_json(problem) for problem in problems]
        if not await batches.refuse_if_validating(session, self.row["no"], self.worker, problems[0].code, says, errors):
            raise Lost
        return count


def _first(problems: list[Problem]) -> list[Problem]:
    return sorted(problems, key=lambda problem: problem.line or 0)[:MOST_PROBLEMS]
