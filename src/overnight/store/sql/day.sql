-- name: open_day_ahead
-- The partitions of a day to come; those that exist are left as they are.
SELECT open_day(days_since_1970(now()) + :ahead::integer);

-- name: read_clock
SELECT now() AS now;
