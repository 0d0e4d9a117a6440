-- Since when a batch is paused, and for how long it was before: that time does not count in its pace.
ALTER TABLE batch ADD COLUMN paused_at timestamptz, ADD COLUMN paused_for interval NOT NULL DEFAULT '0';
UPDATE batch SET paused_at = now() WHERE paused IS NOT NULL;

-- Seconds in which the requests of a batch could run since they could first, `started`; null before that.
-- A pause that an older version ended has left its beginning behind; it says nothing of a batch that is not paused.
CREATE FUNCTION seconds_run(started timestamptz, is_paused boolean, paused_at timestamptz, paused_for interval)
RETURNS float8 LANGUAGE sql STABLE AS $$
    SELECT extract(epoch FROM
        CASE WHEN is_paused THEN greatest(started, coalesce(paused_at, now())) ELSE now() END - started - paused_for
    )::float8
$$;
