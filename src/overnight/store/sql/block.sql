-- name: insert_block
-- The only block of a small batch, or the last of a large one; more at once are copied.
INSERT INTO block (batch, seq, model, state, count, first, last, lines, ids, data)
VALUES (:batch, :seq, :model, :state, :count, :first, :last, :lines, :ids, :data);

-- name: delete_blocks
-- Some blocks of a batch: one whose check starts over, was refused, or was cancelled before it was done.
DELETE FROM block
WHERE batch = :batch AND seq IN (
    SELECT seq FROM block WHERE batch = :batch ORDER BY seq LIMIT :most
);

-- name: read_blocks
-- The requests of some blocks of a batch.
SELECT lines, data FROM block WHERE batch = :batch AND seq = ANY (:seqs::integer[]);

-- name: list_models_of_blocks
-- What the blocks of a batch that waits for its models call them; a batch may name a few hundred at most.
SELECT DISTINCT model FROM block WHERE batch = :batch;

-- name: rename_models_of_blocks
-- The models of a batch that is about to start, by the names that their servers have for them.
UPDATE block k
SET model = n.model
FROM unnest(:names::text[], :models::text[]) AS n (name, model)
WHERE k.batch = :batch AND k.model = n.name;

-- name: list_blocks_of_models
-- The next blocks of a batch that name one of these models.
SELECT seq, lines, data FROM block
WHERE batch = :batch AND seq > :after AND model = ANY (:models::text[])
ORDER BY seq
LIMIT :most;

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

-- name: list_blocks_with_unfinished
-- Of some blocks in a row those that hold requests without a response, with the lines of these between two bounds.
SELECT k.seq, k.lines, w.wanted, CASE WHEN w.wanted IS NOT NULL THEN k.data END AS data
FROM (
    SELECT seq, lines, data FROM block WHERE batch = :batch AND seq > :after_seq ORDER BY seq LIMIT :most
) AS k
CROSS JOIN LATERAL (
    SELECT array_agg(l.line) AS wanted
    FROM unnest(k.lines) AS l (line)
    WHERE l.line > :after AND l.line < :before
        AND NOT EXISTS (SELECT FROM answer a WHERE a.batch = :batch AND a.line = l.line AND a.kind = 0)
) AS w
ORDER BY k.seq;
