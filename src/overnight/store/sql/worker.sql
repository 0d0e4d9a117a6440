-- name: register_worker
-- A process enters the deployment; its first heartbeat is written with it.
WITH registered AS (
    INSERT INTO worker (host, pid, version) VALUES (:host, :pid, :version) RETURNING no, started_at
), first_beat AS (
    INSERT INTO beat (worker, at, slots, capped)
    SELECT no, now(), :slots, :capped FROM registered
)
SELECT no, started_at FROM registered;

-- name: hold_fence
-- For a write of several statements: the worker cannot be declared dead before it commits.
SELECT no, set_config('application_name', :name, true) AS session
FROM worker
WHERE no = :worker AND dead_at IS NULL
FOR SHARE;

-- name: beat_if_alive
-- No row back: this worker was declared dead. Of its batches that start nothing more here some may only be paused.
-- What slots the others have free and nothing to lease for comes back; one whose heartbeat is older starts nothing.
-- The settings come with it, as `list_settings` gives them, so that nobody has to ask for them by themselves.
UPDATE beat b
SET at = now(), running = :running, idle = :idle, ending = (
    SELECT coalesce(sum(r.running), 0)
    FROM unnest(:closed::bigint[], :running_of_closed::integer[]) AS r (batch, running)
    JOIN batch e ON e.no = r.batch
    WHERE e.ends_as IS NOT NULL
), waiting = (
    SELECT min(e.no) FROM batch e WHERE e.no = ANY (:waiting::bigint[]) AND e.ends_as IS NULL
)
FROM worker w
WHERE b.worker = :worker AND w.no = b.worker AND w.dead_at IS NULL
RETURNING b.at, (
    SELECT jsonb_object_agg(i.model, i.slots)
    FROM (
        SELECT e.key AS model, sum(e.value::integer) AS slots
        FROM worker o JOIN beat x ON x.worker = o.no, jsonb_each_text(x.idle) AS e
        WHERE o.dead_at IS NULL AND o.no <> :worker AND x.at > now() - :fresh::interval
        GROUP BY e.key
        LIMIT 1000
    ) AS i
) AS idle_elsewhere, (
    SELECT jsonb_object_agg(s.name, s.value) FROM (SELECT name, value FROM setting ORDER BY name LIMIT 1000) s
) AS settings;

-- name: find_stale_workers
-- Living workers whose heartbeat is older than it may be. No heartbeat could be written while the server was down:
-- after its start all workers have as long again.
SELECT w.no
FROM worker w LEFT JOIN beat b ON b.worker = w.no
WHERE w.dead_at IS NULL
    AND coalesce(b.at, w.started_at) < now() - :limit::interval
    AND pg_postmaster_start_time() < now() - :limit::interval
ORDER BY w.no
LIMIT 100;

-- name: list_lives
-- Which of these lives are of this database, and whether they have ended. Numbers are the same in every database;
-- with the time of the beginning they are not. The caller names no more than the limit.
SELECT w.no, w.dead_at IS NOT NULL AS has_ended
FROM unnest(:workers::bigint[], :started::timestamptz[]) AS l (worker, started)
JOIN worker w ON w.no = l.worker AND w.started_at = l.started
LIMIT 1000;

-- name: declare_dead_if_stale
-- Waits for writes under way, which hold the row shared; the caller sets a lock timeout.
UPDATE worker w
SET dead_at = now()
WHERE w.no = :worker AND w.dead_at IS NULL
    AND NOT EXISTS (SELECT FROM beat b WHERE b.worker = w.no AND b.at >= now() - :limit::interval)
RETURNING w.no;

-- name: end_sessions_of_worker
-- A frozen worker may hold its row locked for ever: its connections are ended.
SELECT pg_terminate_backend(pid) AS ended
FROM pg_stat_activity
WHERE application_name = :name AND datname = current_database()
LIMIT 100;

-- name: end_backends_of_worker
-- A server goes on with a statement after its connection broke: those that a worker has lost are ended and waited for.
SELECT pg_terminate_backend(pid, :milliseconds::bigint) AS ended
FROM pg_stat_activity
WHERE pid = ANY (:pids::integer[]) AND application_name = :name AND datname = current_database()
LIMIT 100;

-- name: retire_worker
-- A worker leaves by itself, or its process is gone; what it still holds is given back as for a dead one. Waits for
-- writes under way, as above.
UPDATE worker SET dead_at = now()
WHERE no = :worker AND dead_at IS NULL
RETURNING no;

-- name: give_back_blocks_of_dead
-- Blocks that a dead worker held can be leased again.
UPDATE block
SET state = 'ready', worker = NULL
WHERE state = 'leased' AND worker = :worker
    AND EXISTS (SELECT FROM worker w WHERE w.no = :worker AND w.dead_at IS NOT NULL)
RETURNING pg_notify('overnight_work', ''), pg_notify('overnight_tidy', '');

-- name: give_back_batches_of_dead
-- Batches that a dead worker was checking or sealing can be taken by another. Locked by number, as a flush does.
WITH left_behind AS MATERIALIZED (
    SELECT no FROM batch
    WHERE status IN ('validating', 'in_progress', 'finalizing', 'cancelling')
        AND (validator = :worker OR sealer = :worker)
        AND EXISTS (SELECT FROM worker w WHERE w.no = :worker AND w.dead_at IS NOT NULL)
    ORDER BY no
    FOR NO KEY UPDATE
)
UPDATE batch b
SET validator = nullif(validator, :worker), sealer = nullif(sealer, :worker)
FROM left_behind l
WHERE b.no = l.no
RETURNING pg_notify('overnight_tidy', '');

-- name: serve_model
-- What a living worker can run; told again when its server lists other models.
INSERT INTO served (worker, model, aliases, context_length, targets, any_model, lacks, blocked)
SELECT w.no, :model, :aliases::text[], :context_length::integer, :targets::text[], :any_model, :lacks::text[],
    :blocked::text
FROM worker w WHERE w.no = :worker AND w.dead_at IS NULL
ON CONFLICT (worker, model) DO UPDATE
SET aliases = excluded.aliases, context_length = excluded.context_length,
    targets = excluded.targets, any_model = excluded.any_model, lacks = excluded.lacks,
    blocked = excluded.blocked;

-- name: stop_serving_others
-- Models of this worker that its servers no longer list.
DELETE FROM served WHERE worker = :worker AND model <> ALL (:models::text[]);

-- name: tell_of_served
-- Batches that wait for a model can be checked now.
SELECT pg_notify('overnight_tidy', '');

-- name: list_served
-- What the living workers can run.
SELECT s.worker, s.model, s.aliases, s.context_length, s.targets, s.any_model, s.lacks, s.blocked, w.started_at
FROM served s JOIN worker w ON w.no = s.worker
WHERE w.dead_at IS NULL
ORDER BY s.model, s.worker
LIMIT 10000;

-- name: forget_dead_workers
-- Rows of workers that died long ago and hold nothing.
DELETE FROM worker w
WHERE w.no IN (
    SELECT no FROM worker
    WHERE dead_at < now() - interval '30 days'
        AND NOT EXISTS (SELECT FROM block b WHERE b.worker = worker.no AND b.state = 'leased')
    ORDER BY no LIMIT 100
);
