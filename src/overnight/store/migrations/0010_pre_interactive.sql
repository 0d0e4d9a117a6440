-- Interactive requests of the worker that asks come with its question, so that what it told before is left out here.
-- Workers of the version before tell none, so that it is the same for them.
CREATE OR REPLACE FUNCTION slots_taken(of_model text, from_worker bigint) RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    taken bigint;
BEGIN
    SELECT coalesce(sum(granted + interactive), 0) INTO taken
    FROM model_grant
    WHERE model = of_model AND worker <> from_worker AND (lingers_until IS NULL OR lingers_until > now());
    RETURN taken;
END $$;
