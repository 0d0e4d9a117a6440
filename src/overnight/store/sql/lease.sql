-- name: lease_blocks_if_alive
-- The claim goes from owner to owner, to each one's batches that may start requests, to their ready blocks: so neither
-- another owner's thousands of batches nor the blocks which cancelled batches leave behind are ever walked through.
-- Owners numbered above `after` come first: callers rotate among them. Of an owner the batch that is due first comes
-- first, from a place on before which nothing was ready a moment ago (`owners`, `dues`, `nos`). That there is a limit,
-- however high, lets the planner read them in the order of the index instead of sorting them all.
-- Of batches in `held` come blocks that went back, a dead worker's for instance: what is lost with it is late already.
-- One row comes back even without a block, to say whether the worker is alive.
WITH RECURSIVE alive AS MATERIALIZED (
    SELECT no FROM worker WHERE no = :worker AND dead_at IS NULL FOR SHARE
), owner_after (no) AS (
    (SELECT owner FROM batch
    WHERE owner > :after::bigint AND status = 'in_progress' AND ends_as IS NULL AND paused IS NULL
    ORDER BY owner
    LIMIT 1)
    UNION ALL
    SELECT next.owner
    FROM owner_after o, LATERAL (
        SELECT owner FROM batch
        WHERE owner > o.no AND status = 'in_progress' AND ends_as IS NULL AND paused IS NULL
        ORDER BY owner
        LIMIT 1
    ) AS next
), owner_before (no) AS (
    (SELECT owner FROM batch
    WHERE owner <= :after::bigint AND status = 'in_progress' AND ends_as IS NULL AND paused IS NULL
    ORDER BY owner
    LIMIT 1)
    UNION ALL
    SELECT next.owner
    FROM owner_before o, LATERAL (
        SELECT owner FROM batch
        WHERE owner > o.no AND owner <= :after::bigint
            AND status = 'in_progress' AND ends_as IS NULL AND paused IS NULL
        ORDER BY owner
        LIMIT 1
    ) AS next
), picked AS MATERIALIZED (
    SELECT k.batch, k.seq
    FROM alive, (
        SELECT no, array_position(:owners::bigint[], no) AS place
        FROM (SELECT no FROM owner_after UNION ALL SELECT no FROM owner_before) AS all_of_them
        WHERE no <> ALL (:fed::bigint[])
    ) AS o, LATERAL (
        SELECT k.batch, k.seq
        FROM (
            SELECT no FROM batch
            WHERE owner = o.no AND status = 'in_progress' AND ends_as IS NULL AND paused IS NULL
                AND (due, no) >= (coalesce((:dues::timestamp[])[o.place], '-infinity'),
                    coalesce((:nos::bigint[])[o.place], 0))
                AND (expires_at IS NULL OR expires_at > now()) AND schema <= :schema
                AND (:only::bigint[] IS NULL OR no = ANY (:only)) AND no <> ALL (:skipped::bigint[])
            ORDER BY due, no
            LIMIT 1000000
        ) AS live, LATERAL (
            SELECT batch, seq FROM block
            WHERE batch = live.no AND state = 'ready'
                AND (:models::text[] IS NULL OR model = ANY (:models::text[])) AND model <> ALL (:other_models::text[])
            ORDER BY seq
            LIMIT :of_each
            FOR UPDATE SKIP LOCKED
        ) AS k
        LIMIT :of_owner
    ) AS k
    LIMIT :most
), returned AS MATERIALIZED (
    SELECT k.batch, k.seq
    FROM alive, unnest(:held::bigint[]) AS h (no)
    JOIN batch live ON live.no = h.no AND status = 'in_progress' AND ends_as IS NULL AND paused IS NULL
        AND (expires_at IS NULL OR expires_at > now()), LATERAL (
        SELECT batch, seq FROM block
        WHERE batch = live.no AND state = 'ready' AND leases > 0
            AND (:models::text[] IS NULL OR model = ANY (:models::text[])) AND model <> ALL (:other_models::text[])
        ORDER BY seq
        LIMIT 1
        FOR UPDATE SKIP LOCKED
    ) AS k
), leased AS (
    UPDATE block k
    SET state = 'leased', worker = :worker, leases = k.leases + 1
    FROM (SELECT batch, seq FROM picked UNION SELECT batch, seq FROM returned) AS p
    WHERE k.batch = p.batch AND k.seq = p.seq AND k.state = 'ready'
    RETURNING k.batch, k.seq, k.model, k.leases, k.lines, k.data
)
SELECT alive.no AS alive, now() AS now, l.batch, l.seq, l.model, l.leases, l.lines, l.data,
    b.id, b.owner, b.endpoint, b.defaults, b.expires_at, b.due,
    b.total - b.completed - b.failed - b.cancelled AS unanswered, b.completed + b.failed AS answered,
    seconds_run(b.in_progress_at, b.paused IS NOT NULL, b.paused_at, b.paused_for) AS seconds,
    b.results_bytes - b.output_bytes AS results_left
FROM (SELECT max(no) AS no FROM alive) AS alive
    LEFT JOIN leased l ON true
    LEFT JOIN batch b ON b.no = l.batch
ORDER BY l.batch, l.seq;

-- name: write_down_if_alive
-- The groups of lines about to be sent, each a slice of `lines`. Only those of batches that may still start requests
-- are written; their numbers come back. One row comes back without any, to say whether the worker is alive.
WITH alive AS MATERIALIZED (
    SELECT no FROM worker WHERE no = :worker AND dead_at IS NULL FOR SHARE
), written AS (
    INSERT INTO attempt (batch, worker, no, blocks, lines)
    SELECT b.no, alive.no, :no, (:blocks::integer[])[g.first_block:g.last_block], (:lines::integer[])[g.first:g.last]
    FROM alive, unnest(
        :batches::bigint[], :firsts::integer[], :lasts::integer[], :first_blocks::integer[], :last_blocks::integer[]
    ) AS g (batch, first, last, first_block, last_block)
    JOIN batch b ON b.no = g.batch
    WHERE b.status = 'in_progress' AND b.ends_as IS NULL AND b.paused IS NULL
        AND (b.expires_at IS NULL OR b.expires_at > now())
    RETURNING batch
)
SELECT (SELECT count(*) FROM alive) AS alive, (SELECT array_agg(batch) FROM written) AS batches;

-- name: take_back_if_alive
-- Lines that were written down and then not sent: they are no tries.
WITH alive AS MATERIALIZED (
    SELECT no FROM worker WHERE no = :worker AND dead_at IS NULL FOR SHARE
), taken AS (
    SELECT t.batch, t.no, array_agg(t.line) AS lines
    FROM unnest(:batches::bigint[], :nos::integer[], :lines::integer[]) AS t (batch, no, line)
    GROUP BY t.batch, t.no
), updated AS (
    UPDATE attempt a
    SET lines = ARRAY (SELECT l FROM unnest(a.lines) AS l WHERE l <> ALL (t.lines))
    FROM alive, taken t
    WHERE a.batch = t.batch AND a.worker = alive.no AND a.no = t.no
    RETURNING 1
)
SELECT (SELECT count(*) FROM alive) AS alive, (SELECT count(*) FROM updated) AS updated;

-- name: note_calls_if_alive
-- Tries that were not final. One that is noted already (its commit was not heard of) is left as it is.
WITH alive AS MATERIALIZED (
    SELECT no FROM worker WHERE no = :worker AND dead_at IS NULL FOR SHARE
), noted AS (
    INSERT INTO call (batch, line, worker, try, took_ms, status, code, message, counted, lost, again_at)
    SELECT c.batch, c.line, alive.no, c.try, c.took_ms, c.status, c.code, c.message, c.counted, c.lost, c.again_at
    FROM alive, unnest(
        :batches::bigint[], :lines::integer[], :tries::smallint[], :took_ms::integer[], :statuses::smallint[],
        :codes::text[], :messages::text[], :counted::boolean[], :lost::boolean[], :again_at::timestamptz[]
    ) AS c (batch, line, try, took_ms, status, code, message, counted, lost, again_at)
    WHERE NOT EXISTS (SELECT FROM call o WHERE o.batch = c.batch AND o.line = c.line AND o.try = c.try)
    RETURNING 1
)
SELECT (SELECT count(*) FROM alive) AS alive, (SELECT count(*) FROM noted) AS noted;

-- name: end_leases_if_ours
-- Blocks whose requests are all answered are done; the others go back, and somebody may wait for them.
WITH alive AS MATERIALIZED (
    SELECT no FROM worker WHERE no = :worker AND dead_at IS NULL FOR SHARE
), ended AS (
    UPDATE block k
    SET state = e.state, worker = NULL
    FROM alive, unnest(:batches::bigint[], :seqs::integer[], :states::text[]) AS e (batch, seq, state)
    WHERE k.batch = e.batch AND k.seq = e.seq AND k.state = 'leased' AND k.worker = alive.no
    RETURNING k.batch, k.state
)
SELECT (SELECT count(*) FROM alive) AS alive, (SELECT count(*) FROM ended) AS ended,
    (SELECT count(pg_notify('overnight_work', '')::text) FROM ended WHERE state = 'ready') AS freed,
    (SELECT count(pg_notify('overnight_tidy', '')::text)
        FROM ended JOIN batch b ON b.no = ended.batch WHERE b.ends_as IS NOT NULL) AS ending;

-- name: list_leases
-- What a worker holds; bounded by what it may lease.
SELECT batch, seq FROM block WHERE state = 'leased' AND worker = :worker;

-- name: list_batch_states
-- Whether the batches that a worker holds may still start requests, and their pace; a deleted one is missing.
SELECT no, status = 'in_progress' AND ends_as IS NULL AND paused IS NULL
    AND (expires_at IS NULL OR expires_at > now()) AS is_live,
    total - completed - failed - cancelled AS unanswered, completed + failed AS answered,
    seconds_run(in_progress_at, paused IS NOT NULL, paused_at, paused_for) AS seconds, now() AS now
FROM batch
WHERE no = ANY (:batches::bigint[]);

-- name: count_tries_of_block
-- For a block that was leased before: how often each of its lines was written down to be sent (`sent`), how many of
-- these do not count as tries (`uncounted`), and how many were lost with their worker or their server (`losses`).
SELECT l.line, count(*)::integer AS sent,
    coalesce(min(c.uncounted), 0)::integer AS uncounted,
    (count(*) - coalesce(min(c.known), 0))::integer AS losses
FROM attempt a
    CROSS JOIN unnest(a.lines) AS l (line)
    LEFT JOIN (
        SELECT line,
            count(*) FILTER (WHERE NOT counted) AS uncounted,
            count(*) FILTER (WHERE NOT lost) AS known
        FROM call
        WHERE batch = :batch AND line = ANY (:lines::integer[])
        GROUP BY line
    ) AS c ON c.line = l.line
WHERE a.batch = :batch AND a.blocks @> ARRAY[:seq::integer] AND l.line = ANY (:lines::integer[])
GROUP BY l.line;
