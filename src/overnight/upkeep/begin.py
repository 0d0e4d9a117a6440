"""Starts batches of direct requests, which were checked whole when they were created."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from overnight.batches.check import BatchCheck, with_total
from overnight.catalog.find import is_known, lacks_of, resolve
from overnight.domain import events, ids
from overnight.domain.limits import MOST_PROBLEMS
from overnight.domain.lines import Problem
from overnight.domain.targets import TARGETS
from overnight.files.shape import problem_as_json
from overnight.store import batches, blocks, rolls
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
        row, model = self.row, None
        async with Ingest(self.store, self.worker, row["no"]).held() as session:
            found = await self._look_up(session) if row["unresolved"] else {}
            problems, count = await self._check(session, found)
            if problems:
                await self._refuse(session, problems, count)
            else:
                model = await self._start(session, {name: known for name, known in found.items() if known})
        batch = ids.show(ids.BATCH, row["id"])
        if problems:
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

    async def _check(self, session: Session, found: Mapping[str, str | None]) -> tuple[list[Problem], int]:
        """The first problems in the order of the requests, and how many there are.

        Read are only requests whose model nobody serves, or whose model has a server that cannot carry everything.
        """
        in_doubt = [name for name, model in found.items() if model is None or lacks_of(self.served, model)]
        check = BatchCheck(
            self.row["endpoint"],
            self._resolve,
            longest=0,
            many_models=True,
            lacks_of=lambda model: lacks_of(self.served, model),
            is_known=lambda name: is_known(self.served, name),
        )
        problems: list[Problem] = []
        async for number, request in blocks.read_of_models(session, self.row["no"], in_doubt):
            check.problems.clear()
            check.read(number, request)
            problems += check.problems
            if check.lines % TURN_REQUESTS == 0:
                problems = _first(problems)
                await asyncio.sleep(0)
        return _first(problems), check.problem_count

    async def _refuse(self, session: Session, found: list[Problem], count: int) -> None:
        """End the batch with its problems; nothing of it is left."""
        problems = with_total(found, count)
        says = problems[0].message if count == 1 else f"{problems[0].message} (the first of {count:,} problems)"
        for delete_some in (blocks.delete_some, rolls.delete_some):
            while await delete_some(session, self.row["no"]):
                pass
        errors = [problem_as_json(problem) for problem in problems]
        if not await batches.refuse_if_validating(session, self.row["no"], self.worker, problems[0].code, says, errors):
            raise Lost


def _first(problems: list[Problem]) -> list[Problem]:
    return sorted(problems, key=lambda problem: problem.line or 0)[:MOST_PROBLEMS]
