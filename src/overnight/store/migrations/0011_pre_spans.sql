-- The first and the last line of a block, so that a page of results looks only into blocks that can hold one of its
-- lines. Null in blocks of before.
ALTER TABLE block ADD COLUMN first integer, ADD COLUMN last integer;

-- How far an unfinished batch is: the requests that may be running, and those that start before its own. PostgreSQL
-- puts this into the statements that use it. Of the requests in its leased blocks no more run than the workers which
-- hold those blocks say they are running: so `running` is never too low by more than a heartbeat. `ahead` counts its
-- owner's batches of the same model that are due sooner and not paused; for a batch whose model is not known yet, those
-- of all models. Other owners' requests start beside its own, however many they are.
CREATE FUNCTION progress_of(batch_no bigint, batch_owner bigint, batch_model text, batch_due timestamp)
RETURNS TABLE (running bigint, ahead bigint) LANGUAGE sql STABLE AS
$$
SELECT least(held.requests, held.running)::bigint, coalesce(sooner.requests, 0)::bigint
FROM (
    SELECT coalesce(sum(k.requests), 0) AS requests, coalesce(sum(beat.running), 0) AS running
    FROM (
        SELECT worker, sum(count) AS requests
        FROM block
        WHERE batch = batch_no AND state = 'leased'
        GROUP BY worker
    ) AS k
    LEFT JOIN beat ON beat.worker = k.worker
) AS held
CROSS JOIN (
    SELECT sum(o.total - o.completed - o.failed - o.cancelled) AS requests
    FROM batch o
    WHERE o.owner = batch_owner AND o.status IN ('validating', 'in_progress') AND o.ends_as IS NULL AND o.paused IS NULL
        AND (o.due, o.no) < (batch_due, batch_no)
        AND (batch_model IS NULL OR o.model = batch_model)
) AS sooner
$$;
