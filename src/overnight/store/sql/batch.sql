-- Every arrow between two states of a batch is one statement here, and its WHERE names the states it leaves.
-- No row back: someone else was first.
-- What others wait for is told with the commit, on the channels of `store/listen.py`.

-- name: serialise_creates
-- One create at a time counts what is in the queue and adds to it: so the capacity is exact. Held to the commit,
-- or until a process that froze in the middle has been silent for five seconds.
SELECT pg_advisory_xact_lock(hashtext('overnight.create_batch')),
    set_config('idle_in_transaction_session_timeout', '5s', true);

-- name: measure_owner
-- What an owner has that is not finished: batches, and requests accepted and not yet answered of those that may start
-- more.
SELECT count(*) AS batches,
    coalesce(sum(total - completed - failed - cancelled) FILTER (WHERE ends_as IS NULL), 0)::bigint AS requests
FROM batch
WHERE owner = :owner AND status IN ('validating', 'in_progress', 'finalizing', 'cancelling');

-- name: find_unfinished_of_file
-- The one batch that an input file may have at a time, where that is so.
SELECT id FROM batch
WHERE input_file = :input_file
    AND status IN ('validating', 'in_progress', 'finalizing', 'cancelling')
LIMIT 1;

-- name: find_unfinished_retry
-- The one batch at a time that runs again what another one has left. One that is ending is none: it starts nothing.
SELECT id FROM batch
WHERE retry_of = :batch AND owner = :owner AND ends_as IS NULL
    AND status IN ('validating', 'in_progress', 'finalizing', 'cancelling')
LIMIT 1;

-- name: create_batch
-- A new batch. The day of its number gets its partitions, where nobody has opened them yet.
WITH today AS MATERIALIZED (
    SELECT open_day(days_since_1970(now()))
)
INSERT INTO batch (no, id, owner, target, endpoint, source, status, input_file, input_file_id, completion_window,
    metadata, defaults, total, output_expires_after, retention, model, unresolved, retry_of, most_requests, line_bytes,
    results_bytes, created_at, expires_at)
SELECT next_batch_no(now()), :id::uuid, :owner::bigint, :target::text, :endpoint::text,
    CASE WHEN :input_file::bigint IS NULL THEN 'direct' ELSE 'file' END, 'validating',
    :input_file::bigint, :input_file_id::uuid, :completion_window::text, :metadata::jsonb, :defaults::jsonb,
    :total::integer, :output_expires_after::integer, :retention::interval, :model::text, :unresolved::boolean,
    :retry_of::uuid, :most_requests::bigint, :line_bytes::integer, :results_bytes::bigint,
    now(), now() + :window::interval
FROM today
RETURNING no, pg_notify('overnight_tidy', '');

-- name: find_batch
-- The whole of one batch, for its owner; with its progress, which means nothing for one that has ended.
SELECT b.no, b.id, b.owner, b.endpoint, b.status, b.ends_as, b.paused, b.model, b.input_file_id, b.output_file_id,
    b.error_file_id, b.retry_of, b.completion_window, b.metadata, b.defaults, b.total, b.completed, b.failed,
    b.cancelled, b.input_tokens, b.cached_tokens, b.output_tokens, b.reasoning_tokens, b.cost_nano_usd,
    b.cost_unknown_attempts, b.error_code, b.error_message, b.errors, b.created_at, b.expires_at, b.in_progress_at,
    b.finalizing_at, b.completed_at, b.failed_at, b.expired_at, b.cancelling_at, b.cancelled_at,
    b.ended_at + b.retention AS results_expires_at, now() AS now, b.paused IS NOT NULL AS is_paused,
    seconds_run(b.in_progress_at, b.paused IS NOT NULL, b.paused_at, b.paused_for) AS seconds, p.*
FROM batch b
LEFT JOIN batch u ON u.no = b.no AND u.ended_at IS NULL
CROSS JOIN LATERAL progress_of(u.no, u.owner, u.model, u.due) AS p
WHERE b.owner = :owner AND b.id = :id;

-- name: find_batch_no
-- The number of a batch, from its public id.
SELECT no FROM batch WHERE id = :id;

-- name: find_batch_to_retry
-- What a batch of another one's unfinished requests takes over from it.
SELECT endpoint, completion_window, metadata, defaults, output_expires_after, total, completed
FROM batch
WHERE no = :batch;

-- name: find_place
-- Where in the list of its owner a batch stands, or stood until it was deleted.
SELECT no FROM batch WHERE id = :id AND owner = :owner
UNION ALL
SELECT no FROM deleted_batch WHERE id = :id AND owner = :owner;

-- name: list_batches
-- One page of an owner's batches in some states, newest first, below the number `before`. A filter that is null lets
-- all through. `text`: part of a metadata value; `low` and `high`: the ids that begin as the search does. Numbers begin
-- with the day of creation, so that no batch of other days is looked at. Each state is walked by itself, so that a few
-- batches in one are found quickly among many in others; by `-no`, which no index has but the one for that, for the
-- planner believes that walking through all batches would do as well.
SELECT b.no, b.id, b.owner, b.endpoint, b.status, b.ends_as, b.paused, b.model, b.input_file_id, b.output_file_id,
    b.error_file_id, b.retry_of, b.completion_window, b.metadata, b.defaults, b.total, b.completed, b.failed,
    b.cancelled, b.input_tokens, b.cached_tokens, b.output_tokens, b.reasoning_tokens, b.cost_nano_usd,
    b.cost_unknown_attempts, b.error_code, b.error_message, b.errors, b.created_at, b.expires_at, b.in_progress_at,
    b.finalizing_at, b.completed_at, b.failed_at, b.expired_at, b.cancelling_at, b.cancelled_at,
    b.ended_at + b.retention AS results_expires_at, now() AS now
FROM unnest(:statuses::text[]) AS s (status)
CROSS JOIN LATERAL (
    SELECT *
    FROM batch
    WHERE owner = :owner AND status = s.status AND no > 0 AND -no > - :before::bigint
        AND (:endpoint::text IS NULL OR endpoint = :endpoint::text)
        AND (:model::text IS NULL OR model = :model::text)
        AND -no <= -(coalesce(days_since_1970(:since::timestamptz), 0)::bigint << 32)
        AND -no > -((coalesce(days_since_1970(:until::timestamptz), 2147483646) + 1)::bigint << 32)
        AND created_at >= coalesce(:since::timestamptz, '-infinity')
        AND created_at < coalesce(:until::timestamptz, 'infinity')
        AND (:text::text IS NULL
            OR id BETWEEN :low::uuid AND :high::uuid
            OR EXISTS (SELECT FROM jsonb_each_text(metadata) AS m WHERE strpos(lower(m.value), lower(:text::text)) > 0))
    ORDER BY -no
    LIMIT :most
) AS b
ORDER BY b.no DESC
LIMIT :most;

-- name: measure_progress
-- For each of some unfinished batches: the requests that may be running, and those that start before its own.
SELECT b.no, b.paused IS NOT NULL AS is_paused,
    seconds_run(b.in_progress_at, b.paused IS NOT NULL, b.paused_at, b.paused_for) AS seconds, p.*
FROM batch b
CROSS JOIN LATERAL progress_of(b.no, b.owner, b.model, b.due) AS p
WHERE b.no = ANY (:batches::bigint[]);

-- name: claim_validating
-- The oldest batch that nobody checks, or that this worker left in the middle. Where no model is served a batch
-- waits, unless its outcome is known without one: its file is known to be bad, its window has closed, or its models
-- were found when it was created.
WITH alive AS MATERIALIZED (
    SELECT no FROM worker WHERE no = :worker AND dead_at IS NULL FOR SHARE
), next AS MATERIALIZED (
    SELECT b.no
    FROM batch b CROSS JOIN alive LEFT JOIN file f ON f.no = b.input_file
    WHERE b.status = 'validating' AND b.schema = 1
        AND (b.validator IS NULL OR b.validator = alive.no)
        AND (:only::bigint[] IS NULL OR b.no = ANY (:only)) AND b.no <> ALL (:skipped::bigint[])
        AND (:may_read::boolean OR coalesce(f.problem_count, 0) > 0 OR b.expires_at <= now()
            OR b.source = 'direct' AND NOT b.unresolved)
    ORDER BY b.no
    LIMIT 1
    FOR NO KEY UPDATE OF b SKIP LOCKED
)
UPDATE batch b
SET validator = alive.no
FROM next, alive
WHERE b.no = next.no
RETURNING b.no, b.id, b.owner, b.endpoint, b.source, b.unresolved, b.model, b.total, b.input_file, b.input_file_id,
    b.most_requests, b.line_bytes;

-- name: hold_validating
-- Nobody changes the batch's state before the caller has committed its blocks.
SELECT no FROM batch
WHERE no = :batch AND status = 'validating' AND validator = :worker
FOR SHARE;

-- name: start_if_validated
-- All that was handed over was found good: its requests may run.
UPDATE batch
SET status = 'in_progress', in_progress_at = now(), validator = NULL, unresolved = false,
    model = :model, total = :total
WHERE no = :batch AND status = 'validating' AND validator = :worker
RETURNING no, pg_notify('overnight_work', '');

-- name: refuse_if_validating
-- The input has problems: nothing of it was accepted, so it is in no count.
UPDATE batch
SET status = 'failed', failed_at = now(), ended_at = now(), validator = NULL, total = 0,
    error_code = :error_code, error_message = :error_message, errors = :errors::jsonb
WHERE no = :batch AND status = 'validating' AND validator = :worker
RETURNING no;

-- name: cancel_if_unfinished
-- One row, whatever the size. A batch that is ending already, in whichever way, goes on as it is.
UPDATE batch
SET status = 'cancelling', cancelling_at = now(), ends_as = 'cancelled'
WHERE no = :batch AND owner = :owner AND status IN ('validating', 'in_progress') AND ends_as IS NULL
RETURNING no, pg_notify('overnight_work', ''), pg_notify('overnight_tidy', '');

-- name: pause_if_it_may_start
-- Nothing of the batch starts until it is resumed. One that is paused already stays so for the reason it has.
UPDATE batch
SET paused = :paused::jsonb, paused_at = now()
WHERE no = :batch AND owner = :owner AND status IN ('validating', 'in_progress') AND ends_as IS NULL AND paused IS NULL
RETURNING no, pg_notify('overnight_work', '');

-- name: resume_if_paused_by_user
-- A batch that is paused for another reason goes on when that is gone. Before its check it could not run anyway.
UPDATE batch
SET paused = NULL, paused_at = NULL,
    paused_for = paused_for + CASE
        WHEN in_progress_at IS NULL OR paused_at IS NULL THEN '0'
        ELSE now() - greatest(paused_at, in_progress_at)
    END
WHERE no = :batch AND owner = :owner AND paused ->> 'reason' = 'user' AND ended_at IS NULL
RETURNING no, pg_notify('overnight_work', '');

-- name: close_if_window_ended
-- From here on nothing of these batches is started. One that has all its answers is not late.
UPDATE batch
SET ends_as = 'expired'
WHERE status = 'in_progress' AND ends_as IS NULL AND no IN (
    SELECT no FROM batch
    WHERE status = 'in_progress' AND ends_as IS NULL AND expires_at <= now()
        AND completed + failed + cancelled < total
        AND (:only::bigint[] IS NULL OR no = ANY (:only))
    ORDER BY no
    LIMIT 100
    FOR NO KEY UPDATE SKIP LOCKED
)
RETURNING no, id, total - completed - failed - cancelled AS unanswered,
    pg_notify('overnight_work', ''), pg_notify('overnight_tidy', '');

-- name: list_paces
-- Batches that run towards the end of a window, by number: for how many seconds they ran, how many are left.
SELECT no, total - completed - failed - cancelled AS unanswered, completed + failed AS answered, told_late,
    seconds_run(in_progress_at, paused IS NOT NULL, paused_at, paused_for) AS seconds,
    extract(epoch FROM expires_at - now())::float8 AS seconds_left
FROM batch
WHERE status = 'in_progress' AND ends_as IS NULL AND paused IS NULL AND expires_at > now()
    AND no > :after AND (:only::bigint[] IS NULL OR no = ANY (:only))
ORDER BY no
LIMIT :most;

-- name: note_late_if_not_told
-- Whoever gets a batch back tells its operator; nobody else does. Locked by number, as a flush does.
WITH late AS MATERIALIZED (
    SELECT no FROM batch
    WHERE no = ANY (:batches::bigint[]) AND NOT told_late
    ORDER BY no
    FOR NO KEY UPDATE
)
UPDATE batch b
SET told_late = true
FROM late
WHERE b.no = late.no
RETURNING b.id, b.total - b.completed - b.failed - b.cancelled AS unanswered, b.expires_at;

-- name: forget_that_late_was_told
-- These batches are in time again: should they be late once more, that is told. Locked by number, as a flush does.
WITH in_time AS MATERIALIZED (
    SELECT no FROM batch
    WHERE no = ANY (:batches::bigint[]) AND told_late
    ORDER BY no
    FOR NO KEY UPDATE
)
UPDATE batch b
SET told_late = false
FROM in_time
WHERE b.no = in_time.no;

-- name: claim_finalizing
-- A batch whose sealing this worker left in the middle, or nobody does, and of which nothing runs.
WITH alive AS MATERIALIZED (
    SELECT no FROM worker WHERE no = :worker AND dead_at IS NULL FOR SHARE
), next AS MATERIALIZED (
    SELECT b.no
    FROM batch b CROSS JOIN alive
    WHERE b.status = 'finalizing' AND b.schema = 1
        AND (b.sealer IS NULL OR b.sealer = alive.no)
        AND (:only::bigint[] IS NULL OR b.no = ANY (:only)) AND b.no <> ALL (:skipped::bigint[])
        AND (b.completed + b.failed + b.cancelled = b.total
            OR NOT EXISTS (SELECT FROM block k WHERE k.batch = b.no AND k.state = 'leased'))
    ORDER BY b.no
    LIMIT 1
    FOR NO KEY UPDATE OF b SKIP LOCKED
)
UPDATE batch b
SET sealer = alive.no
FROM next, alive
WHERE b.no = next.no
RETURNING b.no, b.id, b.owner, b.source, b.ends_as, b.in_progress_at;

-- name: finalize_if_over
-- A batch with all its answers, or one of which nothing starts any more and nothing runs.
-- A lease that was under way may still come through: sealing takes each block by its own state.
WITH alive AS MATERIALIZED (
    SELECT no FROM worker WHERE no = :worker AND dead_at IS NULL FOR SHARE
), next AS MATERIALIZED (
    SELECT b.no
    FROM batch b CROSS JOIN alive
    WHERE b.status IN ('in_progress', 'cancelling') AND b.schema = 1
        AND (:only::bigint[] IS NULL OR b.no = ANY (:only)) AND b.no <> ALL (:skipped::bigint[])
        AND (b.completed + b.failed + b.cancelled = b.total
            OR b.ends_as IS NOT NULL
                AND NOT EXISTS (SELECT FROM block k WHERE k.batch = b.no AND k.state = 'leased'))
    ORDER BY b.no
    LIMIT 1
    FOR NO KEY UPDATE OF b SKIP LOCKED
)
UPDATE batch b
SET status = 'finalizing', finalizing_at = now(), sealer = alive.no, validator = NULL
FROM next, alive
WHERE b.no = next.no AND b.status IN ('in_progress', 'cancelling')
RETURNING b.no, b.id, b.owner, b.source, b.ends_as, b.in_progress_at;

-- name: hold_finalizing
-- The sealer's own batch, locked before its blocks; what its two result streams hold so far.
SELECT no, id, owner, source, ends_as, completed, failed, total - completed - failed - cancelled AS unanswered,
    output_bytes, output_lines, error_bytes, error_lines,
    now() + coalesce(make_interval(secs => output_expires_after), retention) AS results_expire_at
FROM batch
WHERE no = :batch AND status = 'finalizing' AND sealer = :worker
FOR NO KEY UPDATE;

-- name: explain_if_unexplained
-- Why a batch ends without a response, or without all of them when its window closed. One that was stopped has its reason already.
UPDATE batch
SET error_code = :error_code, error_message = :error_message
WHERE no = :batch AND status = 'finalizing' AND sealer = :worker AND error_code IS NULL
    AND (completed = 0 OR ends_as = 'expired')
RETURNING no;

-- name: complete_if_sealed
-- Every request was answered.
UPDATE batch
SET status = 'completed', completed_at = now(), ended_at = now(), sealer = NULL,
    output_file_id = :output_file_id::uuid, error_file_id = :error_file_id::uuid
WHERE no = :batch AND status = 'finalizing' AND sealer = :worker AND ends_as IS NULL
    AND completed + failed + cancelled = total
RETURNING no;

-- name: expire_if_sealed
-- The window closed first.
UPDATE batch
SET status = 'expired', expired_at = now(), ended_at = now(), sealer = NULL,
    output_file_id = :output_file_id::uuid, error_file_id = :error_file_id::uuid
WHERE no = :batch AND status = 'finalizing' AND sealer = :worker AND ends_as = 'expired'
    AND completed + failed + cancelled = total
RETURNING no;

-- name: fail_if_sealed
-- The batch was stopped; why is in its error.
UPDATE batch
SET status = 'failed', failed_at = now(), ended_at = now(), sealer = NULL,
    output_file_id = :output_file_id::uuid, error_file_id = :error_file_id::uuid
WHERE no = :batch AND status = 'finalizing' AND sealer = :worker AND ends_as = 'failed'
    AND completed + failed + cancelled = total
RETURNING no;

-- name: cancel_if_sealed
-- The batch was cancelled. One that had not been checked yet has no requests with lines of their own: all are cancelled.
UPDATE batch
SET status = 'cancelled', cancelled_at = now(), ended_at = now(), sealer = NULL, cancelled = total - completed - failed,
    output_file_id = :output_file_id::uuid, error_file_id = :error_file_id::uuid
WHERE no = :batch AND status = 'finalizing' AND sealer = :worker AND ends_as = 'cancelled'
    AND (completed + failed + cancelled = total OR in_progress_at IS NULL)
RETURNING no;

-- name: list_running
-- Batches that may have results and are not at their end, by number: what the incremental files follow.
SELECT no, id, output_bytes, error_bytes
FROM batch
WHERE status IN ('validating', 'in_progress', 'finalizing', 'cancelling')
    AND in_progress_at IS NOT NULL AND no > :after
ORDER BY no
LIMIT :most;

-- name: list_ended
-- Batches that reached their end after a moment, oldest end first; those without a result are left out.
SELECT no, id, output_bytes, error_bytes, ended_at
FROM batch
WHERE ended_at >= :since AND (ended_at, no) > (:since, :after) AND (in_progress_at IS NOT NULL OR error_bytes > 0)
ORDER BY ended_at, no
LIMIT :most;
