-- Settings that can be changed while everything runs, and what the limits of an owner are counted by.

-- No row: nobody has set it yet, and the environment of a process that starts may. No value: its default, by choice.
CREATE TABLE setting (
    name text PRIMARY KEY,
    value jsonb,
    changed_at timestamptz NOT NULL DEFAULT now()
);

-- Uploads that an owner began within the last hour, whatever became of them.
CREATE TABLE upload_begun (
    owner bigint NOT NULL REFERENCES account,
    at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX upload_begun_of_owner ON upload_begun (owner, at);

-- What a batch was promised when it was created: null in one that is older than these columns, which has the limits
-- of today, and for results where there is no limit.
ALTER TABLE batch
    ADD COLUMN most_requests bigint,
    ADD COLUMN line_bytes integer,
    ADD COLUMN results_bytes bigint;

-- Whether a file may have several unfinished batches is a setting now; creates are counted one after the other.
DROP INDEX batch_unfinished_of_file;
CREATE INDEX batch_unfinished_of_file ON batch (input_file)
    WHERE status IN ('validating', 'in_progress', 'finalizing', 'cancelling');
