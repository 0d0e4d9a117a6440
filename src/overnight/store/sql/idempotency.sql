-- name: find_key
-- What was made under an owner's key. `batch_id` is null where the batch has been deleted.
SELECT i.request, i.bytes, b.id AS batch_id
FROM idempotency i LEFT JOIN batch b ON b.no = i.batch
WHERE i.owner = :owner AND i.key = :key;

-- name: remember_key
-- In the transaction that makes the batch, so that a refused create uses up no key.
INSERT INTO idempotency (owner, key, request, bytes, batch)
VALUES (:owner, :key, :request, :bytes, :batch);

-- name: note_gone
-- Keys whose batch was deleted: remembered for a while from here on.
UPDATE idempotency SET gone_at = now()
WHERE (owner, key) IN (
    SELECT owner, key FROM idempotency
    WHERE batch IS NULL AND gone_at IS NULL
    LIMIT :most
    FOR UPDATE SKIP LOCKED
);

-- name: forget_gone
-- Keys whose batch was deleted long ago.
DELETE FROM idempotency
WHERE (owner, key) IN (
    SELECT owner, key FROM idempotency
    WHERE gone_at < now() - :kept::interval
    LIMIT :most
    FOR UPDATE SKIP LOCKED
);

-- name: forget_ended
-- Keys whose batch ended long ago.
DELETE FROM idempotency
WHERE (owner, key) IN (
    SELECT i.owner, i.key
    FROM idempotency i JOIN batch b ON b.no = i.batch
    WHERE b.ended_at < now() - :kept::interval
    LIMIT :most
    FOR UPDATE OF i SKIP LOCKED
);
