"""Faults of processes: killed, frozen, stopped, one after the other, by a request that is poison."""

from __future__ import annotations

import asyncio
import time

from overnight.domain import ids
from tests.faults.moments import Run
from tests.faults.recorder import Outcome
from tests.faults.stage import Stage

FOUND_DEAD_WITHIN = 5.0
"""Seconds after which, at the latest, somebody has seen that a heartbeat is too old."""
SEALED_WITHIN = 4.0
"""Seconds in which small batches end."""


async def kill_a_worker(run: Run) -> None:
    """kill -9 of a process that runs requests; it is started again later. What it held is free in good time."""
    process = run.chance.choice(run.stage.workers)
    await run.somewhere()
    pid, killed_at = process.pid, time.time()
    run.stage.kill(process.name)
    await asyncio.sleep(run.chance.uniform(0, 3))
    await run.stage.start(process.name)
    if run.database_is_well:
        await _is_declared_dead(run.stage, pid, killed_at)


async def _is_declared_dead(stage: Stage, pid: int, killed_at: float) -> None:
    """With the times of a real deployment that is within 15 s."""
    latest = killed_at + stage.dead_after + FOUND_DEAD_WITHIN + 2 * stage.late.worst
    dead_at = None
    while dead_at is None and time.time() < latest + 30:
        await asyncio.sleep(0.2)
        dead_at = await stage.value("SELECT dead_at FROM worker WHERE pid = $1 ORDER BY no DESC LIMIT 1", pid)
    assert dead_at is not None, f"process {pid} was never declared dead"
    took = dead_at.timestamp() - killed_at
    assert dead_at.timestamp() <= latest, f"process {pid} was declared dead {took:.1f} s after it was killed"


async def kill_all_workers(run: Run) -> None:
    """kill -9 of every process that runs requests, within a moment."""
    await run.somewhere()
    for worker in run.stage.workers:
        run.stage.kill(worker.name)
        await asyncio.sleep(run.chance.uniform(0, 0.2))
    await asyncio.sleep(run.chance.uniform(0, 3))
    await asyncio.gather(*(run.stage.start(worker.name) for worker in run.stage.workers))


async def kill_the_api(run: Run) -> None:
    """kill -9 of the process that is called, while it is called."""
    await run.somewhere()
    run.stage.kill("a")
    late = run.stage.plan(run.chance.randint(20, 60))
    creating = asyncio.create_task(run.stage.caller.create(late))
    await run.stage.start("a")
    await creating


async def die_at_the_commit(run: Run) -> None:
    """kill -9 of the process that is called as it commits a create: before that happened, or before it heard of it."""
    process = run.stage.processes["a"]
    await run.somewhere()
    for after in (True, False):
        job = run.stage.plan(run.chance.randint(20, 60))
        creating = asyncio.create_task(run.stage.caller.create(job))
        process.wire.break_at_commit(f"key-{job.tag}", after=after)
        try:
            async with asyncio.timeout(5):
                await process.wire.broke.wait()
        except TimeoutError:
            # It was out of reach for another reason meanwhile.
            pass
        run.stage.kill("a")
        process.wire.break_at_commit("", after=False)
        await run.stage.start("a")
        # The caller calls again under the same key: there is one batch in the end.
        await creating


async def die_at_a_seal(run: Run) -> None:
    """kill -9 of a process that seals, at any statement of that: so many small batches that some end all the time."""
    stage = run.stage
    for _ in range(run.chance.randint(2, 4)):
        process = run.chance.choice([process for process in stage.processes.values() if "upkeep" in process.parts])
        await _begin_many(run)
        struck = asyncio.Event()

        def strike(name: str = process.name, struck: asyncio.Event = struck) -> None:
            stage.kill(name)
            struck.set()

        process.wire.strike(run.chance.randint(1, 30), strike)
        try:
            async with asyncio.timeout(SEALED_WITHIN):
                await struck.wait()
        except TimeoutError:
            # Others had sealed them all before.
            process.wire.strike(0, lambda: None)
        if process.running is None:
            await stage.start(process.name)


async def _begin_many(run: Run) -> None:
    """Hand over small batches that are all checked before most of them end: what is fenced from then on are seals."""
    stage = run.stage
    jobs = [stage.plan(run.chance.randint(1, 4), "file") for _ in range(run.chance.randint(8, 16))]
    for job in jobs:
        stage.recorder.later |= set(job.names)
    async with asyncio.TaskGroup() as group:
        for job in jobs:
            group.create_task(stage.caller.create(job))
    names = [ids.read(ids.BATCH, job.batch or "") for job in jobs]
    try:
        async with asyncio.timeout(SEALED_WITHIN):
            while await stage.value("SELECT count(*) FROM batch WHERE id = ANY ($1) AND status = 'validating'", names):
                await asyncio.sleep(0.01)
    except TimeoutError:
        # Whoever was to check them is away for another reason.
        return


async def two_deaths_in_a_row(run: Run) -> None:
    """A worker is killed, and another one while it takes over what the first one held."""
    first, second = run.chance.sample(run.stage.workers, 2)
    await run.somewhere()
    run.stage.kill(first.name)
    await asyncio.sleep(run.stage.dead_after + run.chance.uniform(-1, 3))
    run.stage.kill(second.name)
    await asyncio.sleep(run.chance.uniform(0, 2))
    await asyncio.gather(run.stage.start(first.name), run.stage.start(second.name))


async def freeze(run: Run) -> None:
    """A worker stands still for longer than its heartbeat may take, and goes on as if nothing had been."""
    process = run.chance.choice(run.stage.workers)
    await run.somewhere()
    process.freeze()
    try:
        # Sometimes it wakes just as it is declared dead.
        await asyncio.sleep(run.stage.dead_after + run.chance.choice([0.5, 2.5, 5.0]))
    finally:
        process.thaw()


async def freeze_for_a_moment(run: Run) -> None:
    """A worker stands still, but not long enough to be declared dead."""
    process = run.chance.choice(run.stage.workers)
    await run.somewhere()
    process.freeze()
    try:
        await asyncio.sleep(run.stage.dead_after * run.chance.uniform(0.2, 0.6))
    finally:
        process.thaw()


async def terminate(run: Run) -> None:
    """SIGTERM in the middle: what runs ends, what does not start goes back, and nothing runs twice."""
    name = run.chance.choice(run.stage.workers).name
    await run.somewhere()
    code = await run.stage.processes[name].terminate()
    assert code == 0, f"{name} ended with {code} after SIGTERM"
    await run.stage.start(name)


async def poison(run: Run) -> None:
    """One request kills whoever sends it, each time: it fails in the end, and it alone."""
    stage = run.stage
    job = stage.plan(run.chance.randint(30, 60))
    name = run.chance.choice(job.names)
    stage.recorder.refused.discard(name)
    stage.recorder.deadly[name] = stage.kill
    ended = asyncio.Event()
    reviving = asyncio.create_task(_keep_alive(run, ended))  # awaited below
    try:
        await stage.caller.create(job)
        await stage.until_ended(job)
    finally:
        ended.set()
        await reviving
        del stage.recorder.deadly[name]
    sends = stage.recorder.sends[name]
    assert all(send.outcome is Outcome.GONE for send in sends), sends
    assert len(sends) <= 4, f"a request that kills its workers was sent {len(sends)} times"
    beside = [send.name for send in stage.recorder.beside(sends[-1])]
    assert not beside, f"the last time it ran, others ran in the same process: {beside}"
    codes = await stage.sql(
        """SELECT line, code FROM answer JOIN batch ON batch.no = answer.batch
        WHERE batch.id = $1 AND code IS NOT NULL""",
        ids.read(ids.BATCH, job.batch or ""),
    )
    failed = {job.names[row["line"]] for row in codes}
    assert name in failed, "a request that kills its workers did not fail"
    # A server that talks garbage meanwhile ends some for good.
    refused = {one for one in failed if any(send.outcome is Outcome.REFUSED for send in stage.recorder.sends[one])}
    assert failed <= {name, *stage.recorder.refused, *refused}, f"innocent requests failed: {failed}"


async def _keep_alive(run: Run, ended: asyncio.Event) -> None:
    while not ended.is_set():
        for process in run.stage.processes.values():
            if process.running is None:
                await run.stage.start(process.name)
        await asyncio.sleep(0.05)


ALL = (
    kill_a_worker,
    kill_all_workers,
    kill_the_api,
    die_at_the_commit,
    die_at_a_seal,
    two_deaths_in_a_row,
    freeze,
    freeze_for_a_moment,
    terminate,
    poison,
)
