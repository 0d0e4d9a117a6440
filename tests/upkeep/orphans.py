"""What fits together in the database whatever was interrupted: every row belongs to something that has all its rows."""

from __future__ import annotations

from tests.batches.factory import Factory

OF_REQUESTS = ("block", "roll", "attempt", "segment", "answer", "call")
"""The tables that hold rows of requests."""

_RULES = {
    f"rows of {table} belong to a batch, or to one whose rows still go": f"""
        SELECT FROM {table} r
        WHERE NOT EXISTS (SELECT FROM batch b WHERE b.no = r.batch)
            AND NOT EXISTS (SELECT FROM deleted_batch d WHERE d.no = r.batch AND NOT d.emptied)"""
    for table in OF_REQUESTS
} | {
    "no batch is there and deleted": "SELECT FROM batch JOIN deleted_batch USING (no)",
    "blocks and roll name every request of a batch, or none": """
        SELECT FROM batch b
        CROSS JOIN LATERAL (SELECT coalesce(sum(count), 0) AS of_blocks FROM block WHERE batch = b.no) AS k
        CROSS JOIN LATERAL (SELECT coalesce(sum(count), 0) AS of_roll FROM roll WHERE batch = b.no) AS r
        WHERE b.status <> 'validating' AND (b.status <> 'cancelling' OR b.in_progress_at IS NOT NULL)
            AND NOT (b.status = 'finalizing' AND b.in_progress_at IS NULL)
            AND (of_blocks, of_roll) IS DISTINCT FROM CASE
                WHEN b.in_progress_at IS NULL AND b.source = 'file' THEN ROW (0::bigint, 0::bigint)
                ELSE ROW (b.total::bigint, b.total::bigint) END""",
    "each request is in one block": """
        SELECT FROM block, unnest(lines) AS l (line) GROUP BY batch, line HAVING count(*) > 1""",
    "counters, answers and segments say the same": """
        SELECT FROM batch b
        CROSS JOIN LATERAL (
            SELECT count(*) FILTER (WHERE kind = 0) AS good, count(*) FILTER (WHERE kind = 1) AS bad
            FROM answer WHERE batch = b.no
        ) AS a
        CROSS JOIN LATERAL (
            SELECT coalesce(sum(lines) FILTER (WHERE kind = 0), 0) AS good_lines,
                coalesce(sum(lines) FILTER (WHERE kind = 1), 0) AS bad_lines,
                coalesce(sum(bytes) FILTER (WHERE kind = 0), 0) AS good_bytes,
                coalesce(sum(bytes) FILTER (WHERE kind = 1), 0) AS bad_bytes
            FROM segment WHERE batch = b.no
        ) AS s
        WHERE (good, bad, good_lines, bad_lines, good_bytes, bad_bytes) IS DISTINCT FROM
            (b.output_lines::bigint, b.error_lines::bigint, b.output_lines::bigint, b.error_lines::bigint,
                b.output_bytes, b.error_bytes)
            OR good <> b.completed
            OR bad <> b.failed
                + CASE WHEN b.in_progress_at IS NULL AND b.source = 'file' THEN 0 ELSE b.cancelled END""",
    "each answer lies in a segment": """
        SELECT FROM answer a
        WHERE EXISTS (SELECT FROM batch b WHERE b.no = a.batch) AND NOT EXISTS (
            SELECT FROM segment s WHERE s.batch = a.batch AND s.kind = a.kind AND s.starts = a.segment)""",
    "answers, calls and attempts are of requests that there are": """
        SELECT FROM batch b
        CROSS JOIN LATERAL (
            SELECT line FROM answer WHERE batch = b.no
            UNION SELECT line FROM call WHERE batch = b.no
            UNION SELECT unnest(lines) FROM attempt WHERE batch = b.no
            EXCEPT SELECT unnest(lines) FROM block WHERE batch = b.no
        ) AS unknown""",
    "a lease is held by a living worker": """
        SELECT FROM block k
        WHERE k.state = 'leased'
            AND NOT EXISTS (SELECT FROM worker w WHERE w.no = k.worker AND w.dead_at IS NULL)""",
    "an output is of a batch that has ended and names it": """
        SELECT FROM file f
        WHERE f.purpose = 'batch_output' AND f.state = 'ready' AND NOT EXISTS (
            SELECT FROM batch b
            WHERE b.no = f.batch AND b.ended_at IS NOT NULL
                AND f.id = CASE f.kind WHEN 0 THEN b.output_file_id ELSE b.error_file_id END)""",
    "a file batch that has ended names the files of what it holds": """
        SELECT FROM batch b
        WHERE (b.ended_at IS NOT NULL AND b.source = 'file' AND b.output_lines > 0) <> (b.output_file_id IS NOT NULL)
            OR (b.ended_at IS NOT NULL AND b.source = 'file' AND b.error_lines > 0) <> (b.error_file_id IS NOT NULL)""",
    "the bytes of a file are all there": """
        SELECT FROM file f
        CROSS JOIN LATERAL (SELECT coalesce(sum(bytes), 0) AS there FROM file_chunk c WHERE c.file = f.no) AS c
        WHERE f.state IN ('ready', 'part') AND f.batch IS NULL AND c.there <> f.bytes""",
    "parts are of an upload that is open": """
        SELECT FROM file f JOIN upload u ON u.no = f.upload WHERE f.state = 'part' AND u.state <> 'pending'""",
}  # fmt: skip

_LEFT = {
    "no file is on its way or waits to be removed": "SELECT FROM file WHERE state IN ('arriving', 'deleted')",
    "a key that is remembered has its batch, or is known to have lost it": """
        SELECT FROM idempotency WHERE batch IS NULL AND gone_at IS NULL""",
    "no deleted batch has rows": "SELECT FROM deleted_batch WHERE NOT emptied",
}


def _found(rules: dict[str, str]) -> str:
    counts = [
        f"SELECT $rule${rule}$rule$ AS rule, (SELECT count(*) FROM ({sql}) AS found)" for rule, sql in rules.items()
    ]
    return f"SELECT array_agg(rule || ': ' || count) FROM ({' UNION ALL '.join(counts)}) AS all_rules WHERE count > 0"


async def no_orphans(make: Factory, *, after: str = "", settled: bool = False) -> None:
    """Assert that everything fits together; with `settled` also that nothing waits to be removed any more."""
    broken = await make.value(_found(_RULES | _LEFT if settled else _RULES))
    assert broken is None, f"{after}: {broken}"


async def over(make: Factory) -> None:
    """Let all times of grace be over: of senders that fell silent, and of downloads that began before."""
    await make.run("UPDATE file SET touched_at = '-infinity' WHERE state IN ('arriving', 'deleted')")
    await make.run("UPDATE deleted_batch SET rows_go_at = '-infinity'")
