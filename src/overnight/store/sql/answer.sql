-- name: record_if_alive
-- The one way by which answers come to be: fence, counters, segments and answer rows in a single statement.
-- The batch rows are locked in order of their numbers, so that two workers never wait for each other; the totals they
-- return give each segment its place, so segments follow each other in the order of their commits.
-- A batch that was deleted meanwhile is left out. An answer that exists already aborts the statement.
WITH alive AS MATERIALIZED (
    SELECT no FROM worker WHERE no = :worker AND dead_at IS NULL FOR SHARE
), locked AS MATERIALIZED (
    SELECT b.no FROM batch b, alive
    WHERE b.no = ANY (:batches::bigint[])
    ORDER BY b.no
    FOR NO KEY UPDATE OF b
), counted AS (
    UPDATE batch b
    SET completed = b.completed + n.completed,
        failed = b.failed + n.failed,
        cancelled = b.cancelled + n.cancelled,
        input_tokens = b.input_tokens + n.input_tokens,
        cached_tokens = b.cached_tokens + n.cached_tokens,
        output_tokens = b.output_tokens + n.output_tokens,
        reasoning_tokens = b.reasoning_tokens + n.reasoning_tokens,
        output_bytes = b.output_bytes + n.output_bytes,
        output_lines = b.output_lines + n.completed,
        error_bytes = b.error_bytes + n.error_bytes,
        error_lines = b.error_lines + n.failed + n.cancelled
    FROM unnest(
        :batches::bigint[], :completed::integer[], :failed::integer[], :cancelled::integer[],
        :input_tokens::bigint[], :cached_tokens::bigint[], :output_tokens::bigint[], :reasoning_tokens::bigint[],
        :output_bytes::bigint[], :error_bytes::bigint[]
    ) AS n (no, completed, failed, cancelled,
            input_tokens, cached_tokens, output_tokens, reasoning_tokens,
            output_bytes, error_bytes), locked
    WHERE b.no = n.no AND locked.no = n.no
    RETURNING b.no, b.output_bytes, b.output_lines, b.error_bytes, b.error_lines,
        b.completed + b.failed + b.cancelled = b.total AS has_all
), stored AS (
    INSERT INTO segment (batch, kind, starts, lines_before, bytes, lines, data)
    SELECT s.batch, s.kind,
        CASE s.kind WHEN 0 THEN c.output_bytes ELSE c.error_bytes END - s.bytes,
        CASE s.kind WHEN 0 THEN c.output_lines ELSE c.error_lines END - s.lines,
        s.bytes, s.lines, s.data
    FROM unnest(:s_batch::bigint[], :s_kind::smallint[], :s_bytes::integer[], :s_lines::integer[], :s_data::bytea[])
        AS s (batch, kind, bytes, lines, data)
    JOIN counted c ON c.no = s.batch
    RETURNING batch, kind, starts
), answered AS (
    INSERT INTO answer (batch, line, kind, status, tries, frame_index, frame_at, frame_bytes, started_ms, took_ms,
        input_tokens, cached_tokens, output_tokens, reasoning_tokens, segment, code)
    SELECT a.batch, a.line, a.kind, a.status, a.tries, a.frame_index, a.frame_at, a.frame_bytes,
        a.started_ms, a.took_ms, a.input_tokens, a.cached_tokens, a.output_tokens, a.reasoning_tokens, s.starts, a.code
    FROM unnest(
        :a_batch::text::bigint[], :a_line::text::integer[], :a_kind::text::smallint[], :a_status::text::smallint[],
        :a_tries::text::smallint[], :a_frame_index::text::smallint[], :a_frame_at::text::integer[],
        :a_frame_bytes::text::integer[], :a_started_ms::text::bigint[], :a_took_ms::text::integer[],
        :a_input_tokens::text::integer[], :a_cached_tokens::text::integer[], :a_output_tokens::text::integer[],
        :a_reasoning_tokens::text::integer[], :a_code::text::text[]
    ) AS a (batch, line, kind, status, tries, frame_index, frame_at, frame_bytes, started_ms, took_ms,
            input_tokens, cached_tokens, output_tokens, reasoning_tokens, code)
    JOIN stored s ON s.batch = a.batch AND s.kind = a.kind
    RETURNING 1
)
SELECT (SELECT count(*) FROM alive) AS alive, (SELECT count(*) FROM counted) AS batches,
    (SELECT count(*) FROM answered) AS answers,
    (SELECT count(pg_notify('overnight_tidy', '')::text) FROM counted WHERE has_all) AS over;

-- name: list_answered_lines
-- Which of a block's lines are answered, when it is leased once more or sealed.
SELECT line FROM answer WHERE batch = :batch AND line = ANY (:lines::integer[]);

-- name: list_last_calls
-- The last known failure of each line that was tried before, with the moment from which it may be tried again.
SELECT DISTINCT ON (line) line, try, status, code, message, again_at
FROM call
WHERE batch = :batch AND line = ANY (:lines::integer[])
ORDER BY line, try DESC, at DESC;

-- name: list_last_errors
-- How the last try of each line failed, of those that used up a try.
SELECT DISTINCT ON (line) line, status, code, message
FROM call
WHERE batch = :batch AND line = ANY (:lines::integer[]) AND counted
ORDER BY line, try DESC, at DESC;

-- name: count_codes
-- The most frequent error codes of a batch. Reads all its answers: only for a batch that ends without a response.
SELECT code, count(*) AS requests
FROM answer
WHERE batch = :batch AND code IS NOT NULL
GROUP BY code
ORDER BY requests DESC, code
LIMIT :most;

-- name: list_times
-- How long the last try of each request took, for those who measure.
SELECT took_ms FROM answer WHERE batch = :batch AND took_ms IS NOT NULL AND code IS NULL LIMIT 1000000;

-- name: list_segments
-- A result stream from a byte on, in its order.
SELECT starts, bytes, lines_before, lines, data
FROM segment
WHERE batch = :batch AND kind = :kind
    AND starts >= coalesce((
        SELECT max(starts) FROM segment WHERE batch = :batch AND kind = :kind AND starts <= :start), 0)
    AND starts < :stop
ORDER BY starts
LIMIT :most;
