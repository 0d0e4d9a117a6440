"""What callers do at the worst moment: cancel, pause, delete, let the window close, hang up in a create call."""

from __future__ import annotations

import asyncio
import json
import time
from urllib.parse import urlsplit

import httpx

from overnight.domain import ids
from tests.faults.job import Job
from tests.faults.moments import Run

_PAUSE = """
    UPDATE batch SET paused = '{"reason": "user"}'
    WHERE id = ANY ($1) AND status IN ('validating', 'in_progress') AND ends_as IS NULL"""
_RESUME = """
    WITH resumed AS (UPDATE batch SET paused = NULL WHERE id = ANY ($1) AND ended_at IS NULL RETURNING no)
    SELECT count(pg_notify('overnight_work', no::text)) FROM resumed"""


async def cancel(run: Run) -> None:
    """A batch is cancelled while it runs, or as it ends."""
    job = await _running(run)
    await run.some_time_of(job)
    answer = await run.stage.caller.call("POST", f"/v1/batches/{job.batch}/cancel")
    assert answer.status_code in (200, 404), answer.text
    if answer.json().get("cancelling_at") is not None:
        job.cancelled_at = time.time()


async def pause_and_resume(run: Run) -> None:
    """A batch is paused and goes on, a few times."""
    job = await _running(run)
    await run.some_time_of(job)
    for _ in range(run.chance.randint(1, 3)):
        answer = await run.stage.caller.call("POST", f"/v1/batches/{job.batch}/pause")
        paused_at = time.time()
        if answer.status_code != 200:
            # It has ended, or was deleted, meanwhile.
            return
        await asyncio.sleep(run.chance.uniform(0, 1.5))
        job.pauses.append((paused_at, time.time()))
        answer = await run.stage.caller.call("POST", f"/v1/batches/{job.batch}/resume")
        await asyncio.sleep(run.chance.uniform(0, 0.5))


async def delete(run: Run) -> None:
    """A batch is deleted as soon as that is possible: once it was cancelled, or has ended."""
    job = await _running(run)
    await run.some_time_of(job)
    if run.chance.random() < 0.7:
        answer = await run.stage.caller.call("POST", f"/v1/batches/{job.batch}/cancel")
        if answer.json().get("cancelling_at") is not None:
            job.cancelled_at = time.time()
    for _ in range(200):
        answer = await run.stage.caller.call("DELETE", f"/v1/batches/{job.batch}")
        if answer.status_code in (200, 404):
            job.deleted_at = time.time()
            return
        assert answer.status_code == 409, answer.text
        await asyncio.sleep(run.chance.uniform(0.02, 0.3))


async def let_expire(run: Run) -> None:
    """The window of a batch closes while it runs."""
    job = await _running(run)
    await run.some_time_of(job)
    rows = await run.stage.sql(
        "UPDATE batch SET expires_at = clock_timestamp() WHERE id = $1 AND ended_at IS NULL RETURNING expires_at",
        ids.read(ids.BATCH, job.batch or ""),
    )
    if rows:
        # Whoever was writing down at this very moment had looked before.
        job.expires_at = rows[0]["expires_at"].timestamp() + 0.1


async def hang_up_in_create(run: Run) -> None:
    """The caller's connection closes somewhere in a create call, with a key and without."""
    await run.somewhere()
    for keyed in (True, False):
        job = run.stage.plan(run.chance.randint(20, 80))
        file = await run.stage.caller.upload(job) if job.source == "file" else None
        body = json.dumps(job.create(file)).encode()
        key = f"key-{job.tag}"
        await _hang_up(run, body, key if keyed else None)
        if keyed:
            answer = await run.stage.caller.call(
                "POST",
                "/v1/batches",
                content=body,
                headers={"Idempotency-Key": key, "Content-Type": "application/json"},
            )
            assert answer.status_code == 200, answer.text
        await look_it_up(run, job, least=int(keyed))


async def _hang_up(run: Run, body: bytes, key: str | None) -> None:
    """Send a create call, part of it or all, and close the connection without waiting for the answer."""
    address = urlsplit(run.stage.processes["a"].url)
    head = f"POST /v1/batches HTTP/1.1\r\nHost: {address.netloc}\r\nContent-Type: application/json\r\n"
    head += f"Content-Length: {len(body)}\r\n" + (f"Idempotency-Key: {key}\r\n" if key else "") + "\r\n"
    sent = head.encode() + body
    if run.chance.random() < 0.2:
        sent = sent[: run.chance.randrange(len(sent))]
    try:
        _, writer = await asyncio.open_connection(address.hostname, address.port)
        writer.write(sent)
        await writer.drain()
        await asyncio.sleep(run.chance.choice([0, 0.002, 0.01, 0.05]))
        writer.transport.abort()
    except OSError:
        # It has just been killed: that call was cut as well.
        return


async def lose_the_commit(run: Run) -> None:
    """The connection of the API to the database breaks as a create commits, before or after that happened."""
    await run.somewhere()
    for after in (True, False):
        job = run.stage.plan(run.chance.randint(20, 80))
        file = await run.stage.caller.upload(job) if job.source == "file" else None
        wire = run.stage.processes["a"].wire
        wire.break_at_commit(job.tag, after=after)
        try:
            answer = await run.stage.caller.once("POST", "/v1/batches", json=job.create(file))
        except httpx.TransportError:
            # The process died of something else: nobody was told anything.
            await look_it_up(run, job, least=0)
            continue
        finally:
            wire.break_at_commit("", after=False)
        if answer.status_code == 200:
            job.batch = answer.json()["id"]
        else:
            job.refused = True


async def hand_over_bad_requests(run: Run) -> None:
    """A batch of which one request is wrong is refused as a whole, wherever that is found: nothing of it is sent."""
    await run.somewhere()
    for source in ("file", "direct"):
        job = run.stage.plan(run.chance.randint(20, 80), source)
        job.bad = run.chance.randrange(len(job.custom_ids))
        file = await run.stage.caller.upload(job) if source == "file" else None
        answer = await run.stage.caller.call(
            "POST", "/v1/batches", json=job.create(file), headers={"Idempotency-Key": f"key-{job.tag}"}
        )
        if source == "file" or answer.status_code == 200:
            # While no process serves any model, names of models cannot be looked up, and the batch fails later.
            assert answer.status_code == 200, answer.text
            job.batch = answer.json()["id"]
        else:
            assert answer.status_code == 400, answer.text
            job.refused = True


async def claim_at_once(run: Run) -> None:
    """Several small batches may start in the same moment, and all workers hear of it: each block has one taker."""
    jobs = [await run.stage.submit(run.chance.randint(10, 40)) for _ in range(run.chance.randint(3, 6))]
    names = [ids.read(ids.BATCH, job.batch or "") for job in jobs]
    for _ in range(run.chance.randint(2, 4)):
        await run.stage.sql(_PAUSE, names)
        # Who holds something of them looks every second, and lets go of what it does not run.
        await asyncio.sleep(run.chance.uniform(0.3, 1.5))
        await run.stage.sql(_RESUME, names)


async def look_it_up(run: Run, job: Job, least: int) -> None:
    """After a call whose answer nobody heard there is one batch, or none; with a key there is one."""
    await run.stage.look_up(job)
    assert job.batch is not None or not least, "no batch was made of a create call that was repeated"
    job.in_doubt = time.time() if job.batch is None else None


async def _running(run: Run) -> Job:
    """A batch for this alone, so that no two callers ask different things of one."""
    if run.chance.random() < 0.5:
        job = await run.stage.submit(run.chance.randint(100, 250))
        run.jobs.append(job)
        return job
    free = [job for job in run.jobs if job.stopped_at is None and not job.pauses]
    return run.chance.choice(free or run.jobs)


ALL = (
    cancel,
    pause_and_resume,
    delete,
    let_expire,
    hang_up_in_create,
    lose_the_commit,
    hand_over_bad_requests,
    claim_at_once,
)
