-- When a batch is due, in UTC: at the end of its window, or long after its creation where it has none. An owner's
-- batches are leased in this order; the index holds those that may start requests, so that a lease finds each owner,
-- and of each the batch that is due first, however many there are.
ALTER TABLE batch ADD COLUMN due timestamp NOT NULL
    GENERATED ALWAYS AS (coalesce(expires_at AT TIME ZONE 'UTC', created_at AT TIME ZONE 'UTC' + interval '30 days'))
    STORED;
CREATE INDEX batch_startable ON batch (owner, due, no)
    WHERE status = 'in_progress' AND ends_as IS NULL AND paused IS NULL;

-- Its operator was told that the window will close before the batch is done.
ALTER TABLE batch ADD COLUMN told_late boolean NOT NULL DEFAULT false;
