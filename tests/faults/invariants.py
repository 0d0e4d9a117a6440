"""What must hold after any fault, by the database, the API and the model server's own record."""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from typing import Any

from overnight.domain import ids
from tests.faults.job import Job
from tests.faults.recorder import Outcome
from tests.faults.sending import Record, check_sends, check_unmade
from tests.faults.stage import Stage
from tests.faults.uses import too_much, used
from tests.upkeep.orphans import _RULES, _found

SETTLE_WITHIN = 60.0
GIVEN_UP_WITHIN = 2.0
"""Seconds in which a process that comes back gives up what it ran."""
USES = "connections to the database + to the model server + other files / tasks / threads / MiB"

_NOTHING_HELD = {
    "leases of batches that have ended": """
        SELECT b.id FROM block k JOIN batch b ON b.no = k.batch WHERE k.state = 'leased' AND b.ended_at IS NOT NULL""",
    "leases of dead workers": """
        SELECT k.batch FROM block k JOIN worker w ON w.no = k.worker
        WHERE k.state = 'leased' AND w.dead_at IS NOT NULL""",
    "batches held by dead workers": """
        SELECT b.id FROM batch b JOIN worker w ON w.no IN (b.validator, b.sealer)
        WHERE w.dead_at IS NOT NULL AND b.ended_at IS NULL""",
    "connections of dead workers": """
        SELECT application_name
        FROM pg_stat_activity a JOIN worker w ON a.application_name = 'overnight worker ' || w.no
        WHERE w.dead_at IS NOT NULL""",
    "living workers without a process": """
        SELECT no FROM worker WHERE dead_at IS NULL AND pid <> ALL ($1::integer[])""",
    "transactions left open": """
        SELECT pid FROM pg_stat_activity
        WHERE state LIKE 'idle in transaction%' AND state_change < now() - interval '5 seconds'""",
    "files that arrive for nobody": """
        SELECT id FROM file WHERE state = 'arriving' AND touched_at < now() - interval '30 minutes'""",
}

_ANSWERS = """
    SELECT a.line, a.kind, a.code, a.tries, s.at, a.started_ms
    FROM answer a JOIN segment s ON s.batch = a.batch AND s.kind = a.kind AND s.starts = a.segment
    WHERE a.batch = $1"""


async def check(stage: Stage) -> None:
    """Assert everything; batches must have ended, and every fault must be undone."""
    problems: list[str] = []
    new = [job for job in stage.jobs if job.tag not in stage.checked]
    await _settle(stage, problems)
    for job in stage.jobs:
        sent = len(stage.recorder.of(job.names))
        if stage.checked.setdefault(job.tag, sent) != sent:
            problems.append(f"{job.tag}: requests were sent again after it had ended")
    for job in new:
        problems += [f"{job.tag}: {problem}" for problem in await _check_job(stage, job)]
    problems += [*stage.watcher.violations, *stage.ended_alone, *_over_cap(stage)]
    problems += await _misfits(stage)
    assert not problems, "\n".join(problems[:30])


async def _check_job(stage: Stage, job: Job) -> list[str]:
    rows = await stage.sql("SELECT * FROM batch WHERE id = $1", ids.read(ids.BATCH, job.batch or ""))
    if not rows:
        return await check_unmade(stage, job)
    row = rows[0]
    if job.bad is not None:
        return _check_whole(stage, job, row, ("failed", 0, 0))
    if row["in_progress_at"] is None and job.source == "file":
        # Cancelled before its file was checked: none of its requests has a name yet.
        return _check_whole(stage, job, row, ("cancelled", len(job.custom_ids), len(job.custom_ids)))
    problems: list[str] = []
    if row["completed"] + row["failed"] + row["cancelled"] != row["total"]:
        problems.append(f"counts of {dict(row)} do not add up")
    answers = {answer["line"]: answer for answer in await stage.sql(_ANSWERS, row["no"])}
    if set(answers) != set(range(len(job.custom_ids))):
        problems.append(f"{len(answers)} of {len(job.custom_ids)} requests have an answer")
    problems += await check_sends(stage, job, Record(row, answers))
    problems += await _check_files(stage, job, answers)
    return problems


def _over_cap(stage: Stage) -> list[str]:
    """The cap was never exceeded, but for the one gap that is known: a process that stood still while the database was
    restarted cannot be told from one that is gone, so others have its slots until it comes back and gives up its calls.
    """
    problems = []
    within = GIVEN_UP_WITHIN + 2 * stage.late.worst
    for at, said in stage.recorder.over_cap:
        stills = [span for p in stage.processes.values() for span in p.still.touching(at - within, at)]
        if not any(stage.outages.touching(began, ended) for began, ended in stills):
            problems.append(f"{said}, at {at:.3f}")
    return problems


def _check_whole(stage: Stage, job: Job, row: Any, right: tuple[str, int, int]) -> list[str]:
    """A batch that ended as a whole before any of its requests might run: `right` are its status and counts."""
    found = (row["status"], row["total"], row["cancelled"], row["completed"], row["failed"], row["error_lines"])
    problems = [] if found == (*right, 0, 0, 0) else [f"a batch that never began is {found} instead of {right}"]
    sent = stage.recorder.of(job.names)
    return [*problems, *([f"{len(sent)} requests were sent of a batch that never began"] if sent else [])]


async def _check_files(stage: Stage, job: Job, answers: dict[int, Any]) -> list[str]:
    """The files, the pages of results, the counts that callers see and the answers say the same."""
    assert job.batch is not None
    shown = await stage.caller.get(f"/v1/batches/{job.batch}")
    by_kind = {kind: {job.custom_ids[n] for n, answer in answers.items() if answer["kind"] == kind} for kind in (0, 1)}
    lines: dict[str, dict[str, Any]] = {}
    problems = []
    for kind, field in enumerate(("output_file_id", "error_file_id")):
        content = await _content(stage, job, shown, kind, field)
        parsed = [json.loads(line) for line in content]
        if sorted(line["custom_id"] for line in parsed) != sorted(by_kind[kind]):
            problems.append(f"{field} has {len(parsed)} lines where {len(by_kind[kind])} answers are of its kind")
        lines |= {line["custom_id"]: line for line in parsed}
        problems += await _check_hash(stage, shown[field], b"".join(content))
    counts = {"total": len(job.custom_ids), "completed": len(by_kind[0])}
    if {name: shown["request_counts"][name] for name in counts} != counts:
        problems.append(f"shown counts are {shown['request_counts']} where there are {counts}")
    results = await stage.caller.results(job.batch)
    if [result["custom_id"] for result in results] != job.custom_ids:
        problems.append("the pages of results do not list all requests in their order")
    for result in results:
        line = lines.get(result["custom_id"])
        if result["response"] is not None and not _is_right(stage, job, result):
            problems.append(f"nobody was told what is said to be the response: {result}")
        if line is None or any(line[field] != result[field] for field in ("id", "response", "error")):
            problems.append(f"the results say {result} and the file {line}")
    return problems


def _is_right(stage: Stage, job: Job, result: dict[str, Any]) -> bool:
    """Whether the model server said that, to this request."""
    name = f"{job.tag}/{result['custom_id']}"
    said = result["response"]["body"]["choices"][0]["message"]["content"]
    sends = stage.recorder.sends.get(name, [])
    return said in {f"{name} for {send.process}" for send in sends if send.outcome is Outcome.ANSWERED}


async def _content(stage: Stage, job: Job, shown: dict[str, Any], kind: int, field: str) -> list[bytes]:
    if job.source == "file":
        return await stage.caller.lines(shown[field])
    # A direct batch has no files: all its lines are in one stream.
    answer = await stage.caller.call("GET", f"/v1/batches/{job.batch}/output.jsonl?order=submitted")
    assert answer.status_code == 200, answer.text
    all_lines = answer.content.splitlines(keepends=True)
    return [line for line in all_lines if (b'"response":null' in line) == (kind == 1)]


async def _check_hash(stage: Stage, file_id: str | None, content: bytes) -> list[str]:
    if file_id is None:
        return []
    file = await stage.caller.get(f"/v1/files/{file_id}")
    right = (len(content), hashlib.sha256(content).hexdigest())
    said = (file["bytes"], file["sha256"])
    return [] if said == right else [f"{file_id} is said to be {said} and is {right}"]


async def _settle(stage: Stage, problems: list[str]) -> None:
    """Nothing stays held, open or alive that belongs to nobody; what others have to notice may take them a moment."""
    deadline = time.monotonic() + SETTLE_WITHIN
    pids = [process.pid for process in stage.processes.values()]
    held: list[str] = []
    while time.monotonic() < deadline:
        held = []
        for what, statement in _NOTHING_HELD.items():
            rows = await stage.sql(statement, *([pids] if "$1" in statement else []))
            held += [f"{what}: {[row[0] for row in rows][:5]}"] if rows else []
        held += await _used(stage)
        if not held:
            return
        await asyncio.sleep(0.2)
    problems += held


async def _used(stage: Stage) -> list[str]:
    problems = []
    for process in stage.processes.values():
        now, before = await used(process), stage.baseline[process.name]
        if too_much(now, before):
            problems.append(f"{process.name} uses {now} and used {before} when it had started: {USES}")
    return problems


async def _misfits(stage: Stage) -> list[str]:
    """Rows that belong to nothing, and things that miss rows of theirs."""
    found = await stage.value(_found(_RULES))
    return list(found or [])
