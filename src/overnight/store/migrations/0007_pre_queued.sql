-- Since when a model has waited for a machine without a pause, and whether the operator was told that it lasts.
ALTER TABLE model_state ADD COLUMN queued_since timestamptz, ADD COLUMN told_queued boolean NOT NULL DEFAULT false;
CREATE INDEX model_state_queued ON model_state (queued_since) WHERE queued_since IS NOT NULL;
