-- The whole deployment's queue: what waits and what runs, over all batches and processes.

-- name: measure_work
-- For a create: what it finds in the queue.
SELECT unanswered, running, ending FROM work_of_all(:fresh::interval);

-- name: measure_pool
-- All that the pool shows. The oldest batch with a request that waits is one which is being checked, has blocks that
-- nobody holds, or of which a worker says so; what a worker holds that may be gone waits, too. In the moments in which
-- no heartbeat tells of what waits, it is the oldest that is not answered.
WITH fresh AS MATERIALIZED (
    SELECT b.worker, b.waiting
    FROM beat b JOIN worker w ON w.no = b.worker
    WHERE w.dead_at IS NULL AND b.at >= now() - :fresh::interval
)
SELECT work.*, extract(epoch FROM now() - coalesce(waiting.since, unanswered.since))::float8 AS oldest_waiting_seconds
FROM work_of_all(:fresh::interval) AS work
LEFT JOIN (
    SELECT o.created_at AS since
    FROM batch o
    WHERE o.status IN ('validating', 'in_progress', 'finalizing', 'cancelling')
        AND o.ends_as IS NULL AND o.total > o.completed + o.failed + o.cancelled
        AND (o.status = 'validating'
            OR o.no IN (SELECT f.waiting FROM fresh f)
            OR EXISTS (SELECT FROM block k WHERE k.batch = o.no AND k.state = 'ready')
            OR EXISTS (
                SELECT FROM block k
                WHERE k.batch = o.no AND k.state = 'leased'
                    AND NOT EXISTS (SELECT FROM fresh f WHERE f.worker = k.worker)
            ))
    ORDER BY o.no
    LIMIT 1
) AS waiting ON true
LEFT JOIN (
    SELECT o.created_at AS since
    FROM batch o
    WHERE o.status IN ('validating', 'in_progress', 'finalizing', 'cancelling')
        AND o.ends_as IS NULL AND o.total > o.completed + o.failed + o.cancelled
    ORDER BY o.no
    LIMIT 1
) AS unanswered ON waiting.since IS NULL;
