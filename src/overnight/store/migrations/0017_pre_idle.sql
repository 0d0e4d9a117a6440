-- By model, the slots that are free at a worker and for which it finds nothing to lease: others may hold what it could
-- start. Empty in workers of the version before.
ALTER TABLE beat ADD COLUMN idle jsonb NOT NULL DEFAULT '{}';
