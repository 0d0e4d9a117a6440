-- The oldest batch of which a worker holds requests that do not run. Null: none, or a worker of the version before.
ALTER TABLE beat ADD COLUMN waiting bigint;

-- What waits and what runs in the whole deployment: for what shows it and for what lets batches in, so that both say
-- the same. A worker's numbers are at most one heartbeat old; one that may start nothing, since its heartbeat is older
-- than `fresh`, may be gone, and what it ran waits for others. PostgreSQL puts this into the statements that use it.
CREATE FUNCTION work_of_all(fresh interval)
RETURNS TABLE (unanswered bigint, batches bigint, running bigint, ending bigint, slots bigint)
LANGUAGE sql STABLE AS
$$
SELECT work.unanswered, work.batches, fleet.running, fleet.ending, fleet.slots
FROM (
    SELECT count(*) AS batches,
        coalesce(sum(total - completed - failed - cancelled) FILTER (WHERE ends_as IS NULL), 0)::bigint AS unanswered
    FROM batch
    WHERE status IN ('validating', 'in_progress', 'finalizing', 'cancelling')
) AS work
CROSS JOIN (
    SELECT coalesce(sum(b.running), 0)::bigint AS running, coalesce(sum(b.ending), 0)::bigint AS ending,
        coalesce(sum(b.slots), 0)::bigint AS slots
    FROM beat b JOIN worker w ON w.no = b.worker
    WHERE w.dead_at IS NULL AND b.at >= now() - fresh
) AS fleet
$$;
