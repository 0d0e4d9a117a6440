-- name: insert_roll
-- The only row of a small batch, or the last of a large one; more at once are copied.
INSERT INTO roll (batch, first, count, lines, ids)
VALUES (:batch, :first, :count, :lines, :ids);

-- name: list_roll
-- The names of a batch's requests in the order of their lines, from the row on that holds line `start`.
SELECT first, count, lines, ids
FROM roll
WHERE batch = :batch
    AND first >= coalesce((SELECT max(first) FROM roll WHERE batch = :batch AND first <= :start), 0)
ORDER BY first
LIMIT :most;

-- name: delete_roll
-- Some of the names of a batch whose check starts over, was refused, or was cancelled before it was done.
DELETE FROM roll
WHERE batch = :batch AND first IN (
    SELECT first FROM roll WHERE batch = :batch ORDER BY first LIMIT :most
);
