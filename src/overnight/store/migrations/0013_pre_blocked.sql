-- Why nothing of a model can start at a worker's servers now; null where something can.
ALTER TABLE served ADD COLUMN blocked text;

-- How far an unfinished batch is, and what `domain.waiting` needs to say what it waits for. PostgreSQL puts this into the
-- statements that use it. Of the requests in its leased blocks no more run than the workers which hold those blocks say
-- they are running: so `running` is never too low by more than a heartbeat. `ahead` counts its owner's batches of the
-- same model that are due sooner and not paused; for a batch whose model is not known yet, those of all models. Other
-- owners' requests start beside its own, however many they are.
CREATE FUNCTION progress_of(batch_no bigint, batch_owner bigint, batch_model text, batch_due timestamp)
RETURNS TABLE (running bigint, ahead bigint, cap integer, reserve integer, is_queued boolean, servers text[])
LANGUAGE sql STABLE AS
$$
SELECT least(held.requests, held.running)::bigint, coalesce(sooner.requests, 0)::bigint,
    capped.cap, coalesce(capped.reserve, 0),
    EXISTS (SELECT FROM model_state m WHERE m.model = batch_model AND m.held_until > now()),
    ARRAY (
        SELECT DISTINCT s.blocked
        FROM served s JOIN worker w ON w.no = s.worker
        WHERE w.dead_at IS NULL AND (batch_model IS NULL OR s.any_model OR s.model = batch_model)
        LIMIT 100
    )
FROM (
    SELECT max((value #>> '{}')::integer) FILTER (WHERE name = 'BATCH_MODEL_CONCURRENCY') AS cap,
        max((value #>> '{}')::integer) FILTER (WHERE name = 'BATCH_INTERACTIVE_RESERVE') AS reserve
    FROM setting
    WHERE name IN ('BATCH_MODEL_CONCURRENCY', 'BATCH_INTERACTIVE_RESERVE') AND jsonb_typeof(value) = 'number'
) AS capped
CROSS JOIN (
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
