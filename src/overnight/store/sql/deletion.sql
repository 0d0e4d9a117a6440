-- name: lock_batch_of_owner
-- Nobody answers, seals or leaves a batch while its owner deletes it; flushes under way are waited for.
SELECT no FROM batch WHERE owner = :owner AND id = :id FOR UPDATE;

-- name: delete_batch_if_idle
-- The batch and its files are gone for their owner; its rows of requests are removed later. Nothing is deleted while
-- a living worker holds a part of it, unless it has ended: then every request has its answer, and only the lease is
-- left. A few rows, whatever the size.
WITH gone AS (
    DELETE FROM batch b
    WHERE b.no = :batch AND (b.ended_at IS NOT NULL OR NOT EXISTS (
        SELECT FROM block k JOIN worker w ON w.no = k.worker
        WHERE k.batch = :batch AND k.state = 'leased' AND w.dead_at IS NULL
    ))
    RETURNING b.no, b.id, b.owner
), kept AS (
    INSERT INTO deleted_batch (no, id, owner, rows_go_at)
    SELECT no, id, owner, now() + :rows_kept::interval FROM gone
), files AS (
    UPDATE file f SET state = 'deleted', touched_at = now()
    FROM gone
    WHERE f.batch = gone.no AND f.state = 'ready'
)
SELECT no FROM gone;

-- name: delete_batches_after_retention
-- Some batches whose time has come, which is fixed when they are made; their files with them.
WITH due AS MATERIALIZED (
    SELECT no FROM batch
    WHERE ended_at IS NOT NULL
        AND (ended_at AT TIME ZONE 'UTC') + retention <= now() AT TIME ZONE 'UTC'
    ORDER BY (ended_at AT TIME ZONE 'UTC') + retention
    LIMIT :most
    FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM batch b USING due WHERE b.no = due.no RETURNING b.no, b.id, b.owner
), kept AS (
    INSERT INTO deleted_batch (no, id, owner, rows_go_at)
    SELECT no, id, owner, now() + :rows_kept::interval FROM gone
), files AS (
    UPDATE file f SET state = 'deleted', touched_at = now()
    FROM gone
    WHERE f.batch = gone.no AND f.state = 'ready'
)
SELECT id FROM gone;

-- name: lock_deleted_batch
-- A deleted batch whose rows are still there and may go.
SELECT no FROM deleted_batch
WHERE NOT emptied AND rows_go_at <= now()
ORDER BY rows_go_at
LIMIT 1
FOR UPDATE SKIP LOCKED;

-- name: delete_some_segments
-- A piece of what was answered.
DELETE FROM segment
WHERE batch = :batch AND (kind, starts) IN (
    SELECT kind, starts FROM segment WHERE batch = :batch ORDER BY kind, starts LIMIT :most
);

-- name: delete_some_answers
-- A piece of where the answers lie.
DELETE FROM answer
WHERE batch = :batch AND line IN (SELECT line FROM answer WHERE batch = :batch ORDER BY line LIMIT :most);

-- name: delete_some_attempts
-- A piece of what was sent; a batch's rows lie in one partition, where their places tell them apart.
DELETE FROM attempt
WHERE batch = :batch AND ctid = ANY (ARRAY (SELECT ctid FROM attempt WHERE batch = :batch LIMIT :most));

-- name: delete_some_calls
-- A piece of what failed.
DELETE FROM call
WHERE batch = :batch AND ctid = ANY (ARRAY (SELECT ctid FROM call WHERE batch = :batch LIMIT :most));

-- name: note_emptied
-- Nothing is left of a deleted batch but its name.
UPDATE deleted_batch SET emptied = true WHERE no = :batch;

-- name: list_deleted_batches
-- Those of some batches that were deleted not too long ago.
SELECT id FROM deleted_batch WHERE id = ANY (:ids::uuid[]);

-- name: forget_deleted_batches
-- Names of deleted batches are kept for a month: lists go on behind them, and hosts that were away learn of them.
DELETE FROM deleted_batch
WHERE no = ANY (ARRAY (
    SELECT no FROM deleted_batch
    WHERE emptied AND deleted_at < now() - interval '30 days'
    ORDER BY deleted_at LIMIT 100
    FOR UPDATE SKIP LOCKED
));
