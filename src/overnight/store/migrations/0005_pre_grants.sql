-- A model that is shared out between workers: whoever raises a grant of it locks this row first.
CREATE TABLE model_state (
    model text PRIMARY KEY,
    -- When a worker asked for slots last, and since when workers have done so without a pause.
    asked_at timestamptz NOT NULL DEFAULT now(),
    capped_since timestamptz NOT NULL DEFAULT now(),
    -- The model waits for a machine: nothing of it starts before, in any process.
    held_until timestamptz
) WITH (fillfactor = 50);

-- How many slots of a model a worker may use at once, and what it does with them. `interactive` are requests of
-- people that run on the model in that process; they come out of the same cap.
CREATE TABLE model_grant (
    model text NOT NULL REFERENCES model_state,
    worker bigint NOT NULL REFERENCES worker ON DELETE CASCADE,
    granted integer NOT NULL CHECK (granted >= running),
    running integer NOT NULL CHECK (running >= 0),
    wanted integer NOT NULL,
    interactive integer NOT NULL DEFAULT 0,
    -- The worker is dead, and what it had running may still run at its server: its slots are taken until then.
    lingers_until timestamptz,
    -- The worker's session was ended from outside: that none is there does not say that its process is gone.
    session_ended boolean NOT NULL DEFAULT false,
    PRIMARY KEY (model, worker)
) WITH (fillfactor = 50);
CREATE INDEX model_grant_of_worker ON model_grant (worker);
CREATE INDEX model_grant_lingering ON model_grant (lingers_until) WHERE lingers_until IS NOT NULL;

-- Whether the worker starts nothing of a capped model without a grant: all that it runs of one is in `model_grant`.
ALTER TABLE beat ADD capped boolean NOT NULL DEFAULT false;

-- What a model's cap has given to others and to people. It is a function of its own so that it reads what was
-- committed until the caller had locked the model's row: the caller's own statement sees what it saw when it began.
CREATE FUNCTION slots_taken(of_model text, from_worker bigint) RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    taken bigint;
BEGIN
    SELECT coalesce(sum(CASE WHEN worker = from_worker THEN interactive ELSE granted + interactive END), 0) INTO taken
    FROM model_grant
    WHERE model = of_model AND (lingers_until IS NULL OR lingers_until > now());
    RETURN taken;
END $$;
