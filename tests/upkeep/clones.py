"""Copies of a batch with all its rows, made in one statement: for tests that need the same batch very often."""

from __future__ import annotations

from overnight.batches.shape import BatchView
from overnight.domain import ids
from tests.batches.factory import Factory
from tests.upkeep.orphans import OF_REQUESTS

_ROWS = "".join(
    f""", of_{table} AS (
    INSERT INTO {table} SELECT (jsonb_populate_record(r, jsonb_build_object('batch', new.no))).*
    FROM {table} r, new WHERE r.batch = $1
)"""
    for table in OF_REQUESTS
)
_CLONE = f"""
WITH new AS MATERIALIZED (
    SELECT next_batch_no(now()) AS no, gen_random_uuid() AS id, gen_random_uuid() AS output, gen_random_uuid() AS error
), cloned AS (
    INSERT INTO batch (%(columns)s) SELECT %(columns)s FROM (SELECT (jsonb_populate_record(b, jsonb_build_object(
        'no', new.no, 'id', new.id, 'input_file', NULL,
        'output_file_id', CASE WHEN b.output_file_id IS NOT NULL THEN new.output END,
        'error_file_id', CASE WHEN b.error_file_id IS NOT NULL THEN new.error END))).*
    FROM batch b, new WHERE b.no = $1) AS copied
), files AS (
    INSERT INTO file OVERRIDING SYSTEM VALUE SELECT (jsonb_populate_record(f.file, jsonb_build_object(
        'no', f.new_no, 'batch', new.no, 'id', CASE (f.file).kind WHEN 0 THEN new.output ELSE new.error END))).*
    FROM new, (
        SELECT file, nextval(pg_get_serial_sequence('file', 'no')) AS new_no FROM file WHERE batch = $1 OFFSET 0
    ) AS f
){_ROWS}
SELECT id FROM new
"""


async def clone(make: Factory, batch: BatchView) -> str:
    """Copy a batch, its result files and its rows of requests; return the public id of the copy."""
    return ids.show(ids.BATCH, await make.value(_CLONE % {"columns": await make.columns("batch")}, batch.no))
