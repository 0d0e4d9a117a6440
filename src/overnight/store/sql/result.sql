-- name: find_streams
-- Where a batch stands, how much its two result streams hold, and whether a line of it, null for none, is answered.
SELECT no, id, source, status, ends_as, input_file_id, in_progress_at, output_bytes, output_lines, error_bytes, error_lines,
    EXISTS (SELECT FROM answer WHERE batch = no AND line = :line::integer) AS has_answer
FROM batch
WHERE owner = :owner AND id = :id;

-- name: list_answers
-- Answers in the order of their lines, each frame once, with the first answer that lies in it. Frames come up to so many
-- bytes in all, and the first one always.
SELECT p.line, p.kind, p.code, p.tries, p.segment, p.frame_at, p.frame_index,
    CASE WHEN p.upto <= :most_bytes OR p.upto = p.frame_bytes
        THEN substring(s.data FROM p.frame_at + 1 FOR p.frame_bytes) END AS frame
FROM (
    SELECT f.*, sum(CASE WHEN f.is_first THEN f.frame_bytes ELSE 0 END) OVER (ORDER BY f.line) AS upto
    FROM (
        SELECT a.*, row_number() OVER (PARTITION BY kind, segment, frame_at ORDER BY line) = 1 AS is_first
        FROM (
            SELECT line, kind, code, tries, segment, frame_at, frame_bytes, frame_index
            FROM answer
            WHERE batch = :batch AND line BETWEEN :first AND :last
            ORDER BY line
            LIMIT :most
        ) AS a
    ) AS f
) AS p
LEFT JOIN segment s ON p.is_first AND s.batch = :batch AND s.kind = p.kind AND s.starts = p.segment
ORDER BY p.line;

-- name: find_answer_after
-- The line whose answer has so many before it.
SELECT line FROM answer WHERE batch = :batch ORDER BY line OFFSET :skipped LIMIT 1;

-- name: describe_unanswered
-- Of some lines without an answer: whether each runs, how many tries it used up, and how the last of these failed.
-- One runs that was written down by the worker that holds its block, more often than failures of it were noted since.
-- The lines are in order; comparing each line of a leased block with the two ends is ten times as fast as with all, and
-- most blocks lie wholly before or behind them.
WITH leased AS MATERIALIZED (
    SELECT seq, worker, line
    FROM (
        SELECT seq, worker, unnest(lines) AS line
        FROM block
        WHERE batch = :batch AND state = 'leased' AND (first IS NULL OR first <= :last AND last >= :first)
    ) AS k
    WHERE line BETWEEN :first AND :last
), sent AS MATERIALIZED (
    SELECT h.line, count(*) AS times
    FROM attempt a CROSS JOIN unnest(a.lines) AS t (line) JOIN leased h ON h.line = t.line AND h.worker = a.worker
    WHERE a.batch = :batch AND a.blocks && ARRAY (SELECT DISTINCT seq FROM leased)
    GROUP BY h.line
)
SELECT w.line, coalesce(sent.times, 0) > noted.by_holder AS is_running,
    greatest(coalesce(noted.sent, 0) - noted.uncounted, 0)::integer AS tries,
    failed.code, failed.message, failed.status
FROM unnest(:lines::integer[]) AS w (line)
LEFT JOIN leased ON leased.line = w.line
LEFT JOIN sent ON sent.line = w.line
CROSS JOIN LATERAL (
    SELECT max(try) AS sent, count(*) FILTER (WHERE NOT counted) AS uncounted,
        count(*) FILTER (WHERE worker = leased.worker) AS by_holder
    FROM call
    WHERE batch = :batch AND line = w.line
) AS noted
LEFT JOIN LATERAL (
    SELECT code, message, status
    FROM call
    WHERE batch = :batch AND line = w.line AND counted
    ORDER BY try DESC, at DESC
    LIMIT 1
) AS failed ON true;

-- name: find_segment_of_line
-- The segment of a result stream that holds its line `skipped`; callers who go on ask for one near the end.
SELECT starts, bytes, lines_before, data
FROM segment
WHERE batch = :batch AND kind = :kind AND lines_before <= :skipped
ORDER BY starts DESC
LIMIT 1;
