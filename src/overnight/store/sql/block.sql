-- name: delete_blocks
-- Some blocks of a batch: one whose check starts over, was refused, or was cancelled before it was done.
DELETE FROM block
WHERE batch = :batch AND seq IN (
    SELECT seq FROM block WHERE batch = :batch ORDER BY seq LIMIT :most
);

-- name: close_ready_blocks
-- The next blocks of a batch that is being sealed: no worker can lease them any more. A lease that was first is waited
-- for, and its block left out. The caller holds the batch.
WITH next AS MATERIALIZED (
    SELECT seq FROM block
    WHERE batch = :batch AND state = 'ready'
    ORDER BY seq
    LIMIT :most
    FOR UPDATE
)
UPDATE block b
SET state = 'done'
FROM next
WHERE b.batch = :batch AND b.seq = next.seq
RETURNING b.seq, b.leases, b.lines, b.data;
