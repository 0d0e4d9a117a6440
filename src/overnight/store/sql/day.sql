-- name: open_day_ahead
-- The partitions of a day to come; those that exist are left as they are.
SELECT open_day(days_since_1970(now()) + :ahead::integer);

-- name: read_clock
SELECT now() AS now;

-- name: find_partitions_of_gone_days
-- The partitions of the oldest days of which no batch is left and no download can be under way. Today and yesterday
-- stay: a create that began before midnight may still come.
SELECT c.relname AS name
FROM pg_inherits i
JOIN pg_class c ON c.oid = i.inhrelid
CROSS JOIN LATERAL (SELECT substring(c.relname FROM '_([0-9]+)$')::bigint AS no) AS day
WHERE i.inhparent = ANY (ARRAY['block', 'roll', 'attempt', 'segment', 'answer', 'call']::regclass[])
    AND day.no < days_since_1970(now()) - 1
    AND NOT EXISTS (SELECT FROM batch WHERE no >= day.no << 32 AND no < (day.no + 1) << 32)
    AND NOT EXISTS (
        SELECT FROM deleted_batch
        WHERE no >= day.no << 32 AND no < (day.no + 1) << 32 AND deleted_at > now() - :kept::interval
    )
ORDER BY day.no, c.relname
LIMIT :most;

-- name: drop_partition
-- All rows of one table of one day at once; the caller sets a lock timeout.
SELECT drop_partition(:name);
