-- The first schema: accounts, files, batches, blocks, attempts, answers, segments, workers.
--
-- Every table with rows per request or per block is partitioned by `batch`, whose numbers begin with the day on
-- which the batch was created (days since 1970 in the upper bits): so a day's data can be dropped whole,
-- while (batch, line) stays a primary key that no partition can escape.

CREATE TABLE account (
    no bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL UNIQUE,
    role text NOT NULL CHECK (role IN ('free', 'pro', 'internal', 'admin')),
    created_at timestamptz NOT NULL DEFAULT now()
);

INSERT INTO account (name, role) VALUES ('local', 'admin');

CREATE TABLE worker (
    no bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    host text NOT NULL,
    pid integer NOT NULL,
    version text NOT NULL,
    started_at timestamptz NOT NULL DEFAULT now(),
    dead_at timestamptz
);
CREATE INDEX worker_alive ON worker (no) WHERE dead_at IS NULL;

-- Kept apart from `worker`, whose rows are share-locked by every write of their worker:
-- a heartbeat must never wait for a flush, nor the other way round.
CREATE TABLE beat (
    worker bigint PRIMARY KEY REFERENCES worker ON DELETE CASCADE,
    at timestamptz NOT NULL,
    running integer NOT NULL DEFAULT 0,
    slots integer NOT NULL DEFAULT 0
) WITH (fillfactor = 50);

-- What each living worker can run. `any_model`: its server did not list its models, so every name is worth a try.
CREATE TABLE served (
    worker bigint NOT NULL REFERENCES worker ON DELETE CASCADE,
    model text NOT NULL,
    aliases text[] NOT NULL DEFAULT '{}',
    context_length integer,
    targets text[] NOT NULL,
    any_model boolean NOT NULL DEFAULT false,
    PRIMARY KEY (worker, model)
);

-- A file that is sent in parts. It can be added to and completed until `until`: when it expires, or later where
-- putting it together began before.
CREATE TABLE upload (
    no bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id uuid NOT NULL UNIQUE,
    owner bigint NOT NULL REFERENCES account,
    filename text NOT NULL,
    bytes bigint NOT NULL,
    state text NOT NULL CHECK (state IN ('pending', 'completed', 'cancelled', 'expired')),
    file_id uuid,
    file_lives interval,
    created_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz NOT NULL,
    until timestamptz NOT NULL,
    CHECK ((state = 'completed') = (file_id IS NOT NULL))
);
CREATE INDEX upload_pending ON upload (until) WHERE state = 'pending';
CREATE INDEX upload_ended ON upload (until) WHERE state <> 'pending';

CREATE TABLE file (
    no bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id uuid NOT NULL UNIQUE,
    owner bigint NOT NULL REFERENCES account,
    purpose text NOT NULL CHECK (purpose IN ('batch', 'batch_output')),
    filename text NOT NULL,
    state text NOT NULL CHECK (state IN ('arriving', 'ready', 'part', 'deleted')),
    bytes bigint NOT NULL DEFAULT 0,
    lines integer NOT NULL DEFAULT 0,
    sha256 bytea,
    checks integer NOT NULL DEFAULT 0,
    problem_count integer NOT NULL DEFAULT 0,
    problems jsonb,
    -- An output is no copy: it is the segments of this kind of its batch.
    batch bigint,
    kind smallint,
    -- A part of an upload is stored as a file is, and never becomes one.
    upload bigint REFERENCES upload,
    created_at timestamptz NOT NULL DEFAULT now(),
    touched_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz,
    CHECK (state <> 'ready' OR sha256 IS NOT NULL),
    CHECK (state <> 'part' OR upload IS NOT NULL),
    CHECK (state <> 'ready' OR upload IS NULL)
);
CREATE INDEX file_of_owner ON file (owner, created_at DESC, no DESC) WHERE state = 'ready';
CREATE INDEX file_expiring ON file (expires_at) WHERE state = 'ready';
CREATE INDEX file_unfinished ON file (touched_at) WHERE state = 'arriving';
CREATE INDEX file_to_purge ON file (touched_at) WHERE state = 'deleted';
CREATE INDEX file_of_upload ON file (upload) WHERE upload IS NOT NULL;
CREATE UNIQUE INDEX file_of_batch ON file (batch, kind) WHERE batch IS NOT NULL;

CREATE TABLE file_chunk (
    file bigint NOT NULL REFERENCES file,
    starts bigint NOT NULL,
    bytes integer NOT NULL,
    data bytea NOT NULL,
    PRIMARY KEY (file, starts)
);
ALTER TABLE file_chunk ALTER data SET STORAGE EXTERNAL;

CREATE SEQUENCE batch_seq AS integer CYCLE;

CREATE TABLE batch (
    no bigint PRIMARY KEY,
    id uuid NOT NULL UNIQUE,
    owner bigint NOT NULL REFERENCES account,
    target text NOT NULL,
    endpoint text NOT NULL,
    source text NOT NULL CHECK (source IN ('file', 'direct')),
    schema integer NOT NULL DEFAULT 1,
    status text NOT NULL CHECK (status IN
        ('validating', 'in_progress', 'finalizing', 'completed', 'expired', 'failed', 'cancelling', 'cancelled')),
    -- How the batch is to end where that is no longer open: nothing of it is started any more.
    ends_as text CHECK (ends_as IN ('expired', 'failed', 'cancelled')),
    paused jsonb,
    model text,
    -- A direct batch that was taken while no model was served: its blocks name their models as its requests do.
    unresolved boolean NOT NULL DEFAULT false,
    input_file bigint,
    input_file_id uuid,
    output_file_id uuid,
    error_file_id uuid,
    -- The batch whose requests without a response this one runs.
    retry_of uuid,
    completion_window text NOT NULL,
    metadata jsonb NOT NULL DEFAULT '{}',
    defaults jsonb NOT NULL DEFAULT '{}',
    validator bigint,
    sealer bigint,
    total integer NOT NULL DEFAULT 0,
    completed integer NOT NULL DEFAULT 0,
    failed integer NOT NULL DEFAULT 0,
    -- Requests that never ran because the batch was cancelled: in no count that a caller sees.
    cancelled integer NOT NULL DEFAULT 0,
    input_tokens bigint NOT NULL DEFAULT 0,
    cached_tokens bigint NOT NULL DEFAULT 0,
    output_tokens bigint NOT NULL DEFAULT 0,
    reasoning_tokens bigint NOT NULL DEFAULT 0,
    cost_nano_usd bigint NOT NULL DEFAULT 0,
    cost_unknown_attempts integer NOT NULL DEFAULT 0,
    -- Running totals of the two result streams; segments take their places from these.
    output_bytes bigint NOT NULL DEFAULT 0,
    output_lines integer NOT NULL DEFAULT 0,
    error_bytes bigint NOT NULL DEFAULT 0,
    error_lines integer NOT NULL DEFAULT 0,
    error_code text,
    error_message text,
    errors jsonb,
    output_expires_after integer,
    retention interval NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz,
    in_progress_at timestamptz,
    finalizing_at timestamptz,
    completed_at timestamptz,
    failed_at timestamptz,
    expired_at timestamptz,
    cancelling_at timestamptz,
    cancelled_at timestamptz,
    -- When the final state was reached, whichever it is: retention counts from here.
    ended_at timestamptz,
    CHECK ((ended_at IS NULL) = (status IN ('validating', 'in_progress', 'finalizing', 'cancelling'))),
    CHECK (completed + failed + cancelled <= total)
) WITH (fillfactor = 70);
CREATE INDEX batch_of_owner ON batch (owner, no DESC);
CREATE INDEX batch_unfinished ON batch (no)
    WHERE status IN ('validating', 'in_progress', 'finalizing', 'cancelling');
CREATE INDEX batch_ended ON batch (ended_at, no) WHERE ended_at IS NOT NULL;
CREATE INDEX batch_retained ON batch ((ended_at AT TIME ZONE 'UTC' + retention)) WHERE ended_at IS NOT NULL;
CREATE UNIQUE INDEX batch_unfinished_of_file ON batch (input_file)
    WHERE status IN ('validating', 'in_progress', 'finalizing', 'cancelling');

-- Which create calls were made under a key of the caller's. The row outlives its batch, so that a call that is
-- repeated after the batch was deleted does not make a new one.
CREATE TABLE idempotency (
    owner bigint NOT NULL REFERENCES account,
    key text NOT NULL,
    -- SHA-256 of what the body says, and how long the body was.
    request bytea NOT NULL,
    bytes integer NOT NULL,
    batch bigint REFERENCES batch ON DELETE SET NULL,
    gone_at timestamptz,
    PRIMARY KEY (owner, key)
);
CREATE INDEX idempotency_of_batch ON idempotency (batch);

-- Batches that are gone for everybody. Their rows of requests are removed later, in pieces or with their day;
-- their names are kept a while longer.
CREATE TABLE deleted_batch (
    no bigint PRIMARY KEY,
    id uuid NOT NULL UNIQUE,
    owner bigint NOT NULL,
    deleted_at timestamptz NOT NULL DEFAULT now(),
    rows_go_at timestamptz NOT NULL,
    emptied boolean NOT NULL DEFAULT false
);
CREATE INDEX deleted_batch_to_empty ON deleted_batch (rows_go_at) WHERE NOT emptied;

CREATE TABLE block (
    batch bigint NOT NULL,
    seq integer NOT NULL,
    model text NOT NULL,
    state text NOT NULL CHECK (state IN ('ready', 'leased', 'done')),
    worker bigint,
    -- How often it was leased: a block leased for the first time has no answers and no tries to look for.
    leases integer NOT NULL DEFAULT 0,
    count integer NOT NULL,
    lines integer[] NOT NULL,
    ids integer[] NOT NULL,
    data bytea NOT NULL,
    PRIMARY KEY (batch, seq)
) PARTITION BY RANGE (batch);
ALTER TABLE block ALTER data SET STORAGE EXTERNAL;
CREATE INDEX block_ready ON block (batch, seq) WHERE state = 'ready';
CREATE INDEX block_leased ON block (batch, worker) WHERE state = 'leased';

-- Who is in a batch: the custom ids of up to 512 requests in the order of their lines, as compressed JSON. Blocks hold
-- requests in the order in which they run; a page in the order of submission must not look for its lines in all of them.
CREATE TABLE roll (
    batch bigint NOT NULL,
    first integer NOT NULL,
    count integer NOT NULL,
    -- Null where they follow each other without a gap, from `first` on.
    lines integer[],
    ids bytea NOT NULL,
    PRIMARY KEY (batch, first)
) PARTITION BY RANGE (batch);
ALTER TABLE roll ALTER ids SET STORAGE EXTERNAL;

-- What a worker is about to send, written down before: a group of lines of one batch. `no` counts a worker's groups,
-- `blocks` are those that the lines belong to, so that the tries of a block are found without reading all groups.
CREATE TABLE attempt (
    batch bigint NOT NULL,
    worker bigint NOT NULL,
    no integer NOT NULL,
    blocks integer[] NOT NULL,
    lines integer[] NOT NULL,
    at timestamptz NOT NULL DEFAULT now()
) PARTITION BY RANGE (batch);
CREATE INDEX attempt_of_batch ON attempt (batch);

CREATE TABLE segment (
    batch bigint NOT NULL,
    kind smallint NOT NULL CHECK (kind IN (0, 1)),
    starts bigint NOT NULL,
    lines_before integer NOT NULL,
    bytes integer NOT NULL,
    lines integer NOT NULL,
    at timestamptz NOT NULL DEFAULT now(),
    data bytea NOT NULL,
    PRIMARY KEY (batch, kind, starts)
) PARTITION BY RANGE (batch);
ALTER TABLE segment ALTER data SET STORAGE EXTERNAL;

CREATE TABLE answer (
    batch bigint NOT NULL,
    line integer NOT NULL,
    kind smallint NOT NULL,
    status smallint,
    tries smallint NOT NULL,
    frame_index smallint NOT NULL,
    frame_at integer NOT NULL,
    frame_bytes integer NOT NULL,
    started_ms bigint,
    took_ms integer,
    input_tokens integer NOT NULL,
    cached_tokens integer NOT NULL,
    output_tokens integer NOT NULL,
    reasoning_tokens integer NOT NULL,
    segment bigint NOT NULL,
    code text,
    PRIMARY KEY (batch, line)
) PARTITION BY RANGE (batch);

-- Tries that were not final; those that were are in `answer`. Together they are the request log.
-- `try` says which attempt at the line it was, counted from 1 over all workers. An attempt that used up no try is not
-- `counted`; `lost` is one under which a local engine died.
CREATE TABLE call (
    batch bigint NOT NULL,
    line integer NOT NULL,
    worker bigint NOT NULL,
    try smallint NOT NULL,
    at timestamptz NOT NULL DEFAULT now(),
    took_ms integer NOT NULL,
    status smallint,
    code text NOT NULL,
    message text NOT NULL,
    counted boolean NOT NULL DEFAULT true,
    lost boolean NOT NULL DEFAULT false,
    again_at timestamptz
) PARTITION BY RANGE (batch);
CREATE INDEX call_of_line ON call (batch, line);

-- Open the partitions of one day, given in days since 1970. Repeatable, and safe when several do it at once.
CREATE FUNCTION open_day(day integer) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    parent text;
    low bigint := day::bigint << 32;
    high bigint := (day + 1)::bigint << 32;
BEGIN
    IF to_regclass('call_' || day) IS NOT NULL THEN
        RETURN;
    END IF;
    PERFORM pg_advisory_xact_lock(hashtext('overnight.open_day'));
    FOREACH parent IN ARRAY ARRAY['block', 'roll', 'attempt', 'segment', 'answer', 'call'] LOOP
        EXECUTE format('CREATE TABLE IF NOT EXISTS %I PARTITION OF %I FOR VALUES FROM (%s) TO (%s)',
                       parent || '_' || day, parent, low, high);
    END LOOP;
END $$;

-- Remove one table's rows of one day.
CREATE FUNCTION drop_partition(name text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('DROP TABLE IF EXISTS %I', name);
END $$;

CREATE FUNCTION days_since_1970(moment timestamptz) RETURNS integer LANGUAGE sql STABLE AS
$$ SELECT floor(extract(epoch FROM moment) / 86400)::integer $$;

-- The number of a new batch: its day above, a running number below.
CREATE FUNCTION next_batch_no(moment timestamptz) RETURNS bigint LANGUAGE sql VOLATILE AS
$$ SELECT (days_since_1970(moment)::bigint << 32) | nextval('batch_seq') $$;

SELECT open_day(days_since_1970(now())), open_day(days_since_1970(now()) + 1);
