-- What a server cannot carry of a request's body. Some databases have it since their first migration.
ALTER TABLE served ADD COLUMN IF NOT EXISTS lacks text[] NOT NULL DEFAULT '{}';
