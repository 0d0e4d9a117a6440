-- name: insert_upload
-- An upload without parts.
INSERT INTO upload (id, owner, filename, bytes, state, file_lives, expires_at, until)
VALUES (:id, :owner, :filename, :bytes, 'pending', :file_lives, now() + :open::interval, now() + :open);

-- name: count_begun
-- Uploads that an owner began within the last hour, and in how many seconds there are fewer than `most` of them.
SELECT count(*) AS begun, extract(epoch FROM (
    SELECT at FROM upload_begun
    WHERE owner = :owner AND at > now() - interval '1 hour'
    ORDER BY at DESC OFFSET :most - 1 LIMIT 1
) + interval '1 hour' - now())::float8 AS wait
FROM upload_begun
WHERE owner = :owner AND at > now() - interval '1 hour';

-- name: note_begun
-- An owner begins an upload; those that count no more are forgotten.
WITH forgotten AS (
    DELETE FROM upload_begun WHERE owner = :owner AND at <= now() - interval '1 hour'
)
INSERT INTO upload_begun (owner) VALUES (:owner);

-- name: measure_stored
-- Bytes of an owner's input files, and of those that are announced and on their way in parts.
SELECT (
    SELECT coalesce(sum(bytes), 0) FROM file
    WHERE owner = :owner AND state = 'ready' AND purpose = 'batch' AND (expires_at IS NULL OR expires_at > now())
)::bigint + (
    SELECT coalesce(sum(bytes), 0) FROM upload WHERE owner = :owner AND state = 'pending' AND until > now()
)::bigint AS bytes;

-- name: find_upload
-- One upload as its owner sees it: it has expired as soon as its time is over.
SELECT no, id, owner, filename, bytes, file_id, file_lives, created_at, expires_at,
    CASE WHEN state = 'pending' AND until <= now() THEN 'expired' ELSE state END AS status
FROM upload
WHERE id = :id AND owner = :owner;

-- name: count_parts
-- How many parts there are, those on their way included.
SELECT count(*) AS parts FROM file WHERE upload = :upload AND state IN ('arriving', 'part');

-- name: begin_part_if_pending
-- A part whose bytes are on their way. No row: its upload has ended.
INSERT INTO file (id, owner, purpose, filename, state, upload)
SELECT :id, owner, 'batch', filename, 'arriving', no
FROM upload
WHERE no = :upload AND state = 'pending' AND until > now()
RETURNING no;

-- name: finish_part_if_pending
-- All bytes of the part are there. The upload's row is locked, so that one which ends now finds every part.
WITH pending AS (
    SELECT no FROM upload WHERE no = :upload AND state = 'pending' AND until > now() FOR SHARE
)
UPDATE file
SET state = 'part', bytes = :bytes, touched_at = now()
FROM pending
WHERE file.no = :part AND file.upload = pending.no AND file.state = 'arriving'
RETURNING file.created_at;

-- name: find_parts
-- Those of some parts that are there.
SELECT no, id, bytes FROM file WHERE upload = :upload AND state = 'part' AND id = ANY (:ids::uuid[]);

-- name: hold_if_pending
-- What began in time may end later, once, and by a fixed time.
UPDATE upload SET until = expires_at + :longer::interval WHERE no = :upload AND state = 'pending' AND until > now();

-- name: complete_if_pending
-- The upload becomes a file. No row: it ended in another way, or another call completed it.
UPDATE upload SET state = 'completed', file_id = :file_id WHERE no = :upload AND state = 'pending' AND until > now();

-- name: cancel_if_pending
-- Nothing can be added any more.
UPDATE upload SET state = 'cancelled' WHERE no = :upload AND state = 'pending' AND until > now();

-- name: expire_one
-- An upload whose time is over.
UPDATE upload SET state = 'expired'
WHERE no = (
    SELECT no FROM upload WHERE state = 'pending' AND until <= now()
    ORDER BY until LIMIT 1
    FOR UPDATE SKIP LOCKED
)
RETURNING no;

-- name: give_up_parts
-- Nobody needs them any more; the purge of files removes them piece by piece.
UPDATE file SET state = 'deleted', touched_at = '-infinity'
WHERE upload = :upload AND state IN ('arriving', 'part');

-- name: forget_ended
-- Uploads that ended so long ago that nobody asks for them, once their parts are gone.
DELETE FROM upload
WHERE no = ANY (ARRAY (
    SELECT no FROM upload
    WHERE state <> 'pending' AND until < now() - :kept::interval
        AND NOT EXISTS (SELECT FROM file WHERE file.upload = upload.no)
    ORDER BY until LIMIT 100
    FOR UPDATE SKIP LOCKED
));
