-- name: share_slots_if_alive
-- One worker tells what it runs and wants of some models and takes what it may have. It is one statement, so that a
-- worker which freezes in the middle holds up nobody. The models' rows are locked in the order of their names; what
-- the others have is read by `slots_taken` after that. The rule is `domain.grants.settle`:
--     allowed = max(0, min(target, cap - interactive - taken)), granted = max(holds, allowed)
-- While a cap is new, somebody may not have heard of it and run requests that are in no row yet: nothing is raised
-- until all workers tell what they run, or had time enough to.
WITH alive AS MATERIALIZED (
    SELECT no FROM worker WHERE no = :worker AND dead_at IS NULL FOR SHARE
), joined AS (
    UPDATE beat b SET capped = true FROM alive WHERE b.worker = alive.no AND NOT b.capped RETURNING 1
), locked AS MATERIALIZED (
    INSERT INTO model_state AS m (model)
    SELECT a.model FROM alive, unnest(:models::text[]) AS a (model) ORDER BY a.model
    ON CONFLICT (model) DO UPDATE
    SET asked_at = now(),
        capped_since = CASE WHEN m.asked_at > now() - interval '1 minute' THEN m.capped_since ELSE now() END
    RETURNING m.model, m.capped_since
), asked AS MATERIALIZED (
    SELECT l.model, a.running, a.holds, a.wanted, a.target, a.interactive,
        CASE WHEN l.capped_since < now() - :settled_after::interval OR NOT EXISTS (
                SELECT FROM worker w JOIN beat b ON b.worker = w.no
                WHERE w.dead_at IS NULL AND w.no <> :worker AND b.slots > 0 AND NOT b.capped)
            THEN a.target ELSE least(a.target, a.allowed) END AS may_have,
        greatest(0, a.cap - a.interactive - slots_taken(l.model, :worker)) AS free
    FROM locked l JOIN unnest(
        :models::text[], :running::integer[], :holds::integer[], :wanted::integer[], :targets::integer[],
        :allowed::integer[], :caps::integer[], :interactive::integer[]
    ) AS a (model, running, holds, wanted, target, allowed, cap, interactive) ON a.model = l.model
), given AS MATERIALIZED (
    SELECT model, running, holds, wanted, interactive, greatest(0, least(may_have, free))::integer AS allowed
    FROM asked
), stored AS (
    INSERT INTO model_grant (model, worker, granted, running, wanted, interactive)
    SELECT model, :worker, greatest(holds, allowed), running, wanted, interactive FROM given
    ON CONFLICT (model, worker) DO UPDATE
    SET granted = excluded.granted, running = excluded.running, wanted = excluded.wanted,
        interactive = excluded.interactive, session_ended = false
    RETURNING model, granted
)
SELECT alive.no AS alive, extract(epoch FROM now())::bigint AS seconds, given.model, given.allowed, stored.granted,
    others.workers, others.grants, others.wants, others.interactive, others.lingering
FROM (SELECT max(no) AS no FROM alive) AS alive
    LEFT JOIN given ON true
    LEFT JOIN stored ON stored.model = given.model
    LEFT JOIN LATERAL (
        SELECT array_agg(worker) AS workers, array_agg(granted) AS grants, array_agg(wanted) AS wants,
            array_agg(interactive) AS interactive, array_agg(lingers_until IS NOT NULL) AS lingering
        FROM model_grant
        WHERE model = given.model AND worker <> :worker AND (lingers_until IS NULL OR lingers_until > now())
    ) AS others ON true;

-- name: give_back_slots
-- A worker has no use for these models any more. What is given back needs no lock: whoever does not see it yet only
-- takes less than there is.
DELETE FROM model_grant WHERE worker = :worker AND model = ANY (:models::text[]) AND lingers_until IS NULL;

-- name: leave_caps
-- A worker's models have no cap any more.
WITH left_ AS (
    DELETE FROM model_grant WHERE worker = :worker AND lingers_until IS NULL
)
UPDATE beat SET capped = false WHERE worker = :worker;

-- name: release_slots_of_dead
-- What a dead worker ran does not run any more.
DELETE FROM model_grant g
USING worker w
WHERE g.worker = :worker AND w.no = g.worker AND w.dead_at IS NOT NULL;

-- name: keep_slots_of_frozen
-- A worker was declared dead, yet one of its sessions is or was there: it is frozen or cut off, and what it had running
-- may still run. Its slots stay taken for as long as a request may take.
UPDATE model_grant g
SET wanted = 0, lingers_until = now() + :lingers::interval
WHERE g.worker = :worker AND g.granted > 0
    AND (g.session_ended OR EXISTS (
        SELECT FROM pg_stat_activity WHERE application_name = :name AND datname = current_database()));

-- name: release_slots_without_session
-- A worker was declared dead and its process is gone: nothing of it runs.
DELETE FROM model_grant WHERE worker = :worker AND lingers_until IS NULL;

-- name: mark_sessions_to_be_ended
-- To be committed before they are ended, so that nobody takes a frozen worker for one whose process is gone.
UPDATE model_grant
SET session_ended = true
WHERE worker = :worker
    AND EXISTS (SELECT FROM pg_stat_activity WHERE application_name = :name AND datname = current_database());

-- name: release_ended
-- The time of a dead worker's slots is over, or its session has ended by itself, and with it its process.
DELETE FROM model_grant g
WHERE g.lingers_until IS NOT NULL
    AND (g.lingers_until <= now() OR NOT g.session_ended AND NOT EXISTS (
        SELECT FROM pg_stat_activity
        WHERE application_name = :prefix::text || g.worker AND datname = current_database()));

-- name: hold_models_if_alive
-- Models that wait for a machine: nobody starts anything of them for so long. One that is held longer stays so. One
-- that was told so again, when it was asked the next time, has waited since it was told so first.
WITH alive AS MATERIALIZED (
    SELECT no FROM worker WHERE no = :worker AND dead_at IS NULL FOR SHARE
), held AS (
    INSERT INTO model_state AS m (model, held_until, queued_since)
    SELECT h.model, now() + h.wait, now()
    FROM alive, unnest(:models::text[], :waits::interval[]) AS h (model, wait)
    ORDER BY h.model
    ON CONFLICT (model) DO UPDATE
    SET held_until = greatest(m.held_until, excluded.held_until), queued_since = coalesce(m.queued_since, now())
    RETURNING m.model, pg_notify('overnight_work', '')
)
SELECT (SELECT count(*) FROM alive) AS alive, (SELECT count(*) FROM held) AS held;

-- name: list_held_models
-- For how long each of these models still waits.
SELECT model, held_until - now() AS wait
FROM model_state
WHERE model = ANY (:models::text[]) AND held_until > now();

-- name: note_long_queued_if_not_told
-- Models that have waited for longer than they may without the operator's knowing.
UPDATE model_state
SET told_queued = true
WHERE model IN (
    SELECT model FROM model_state
    WHERE queued_since < now() - :after::interval AND held_until > now() AND NOT told_queued
    LIMIT 100
    FOR UPDATE SKIP LOCKED
)
RETURNING model, queued_since;

-- name: end_queued_if_served
-- Models that were asked again and did not say any more that they wait: so long after the end of the last wait, the
-- next one is a new one. Of those whose operator was told the wait, the end is told, too.
WITH over AS (
    SELECT model, told_queued FROM model_state
    WHERE queued_since IS NOT NULL AND held_until < now() - :quiet::interval
    LIMIT 100
    FOR UPDATE SKIP LOCKED
), ended AS (
    UPDATE model_state m SET queued_since = NULL, told_queued = false FROM over o WHERE m.model = o.model
    RETURNING m.model
)
SELECT o.model FROM over o JOIN ended e ON e.model = o.model WHERE o.told_queued;

-- name: forget_models
-- Models that nobody shares out any more; callers may make up names without end.
DELETE FROM model_state
WHERE model IN (
    SELECT m.model FROM model_state m
    WHERE m.asked_at < now() - interval '1 day' AND coalesce(m.held_until, '-infinity') < now()
        AND NOT EXISTS (SELECT FROM model_grant g WHERE g.model = m.model)
    LIMIT 100
    FOR UPDATE SKIP LOCKED
);
