-- name: begin_file
-- A file whose bytes are on their way; nobody can see it until it is finished.
INSERT INTO file (id, owner, purpose, filename, state)
VALUES (:id, :owner, 'batch', :filename, 'arriving')
RETURNING no;

-- name: append_chunks_if_arriving
-- Zero rows: the file was given up meanwhile, and its purge has begun.
WITH arriving AS (
    UPDATE file SET touched_at = now() WHERE no = :file AND state = 'arriving' RETURNING no
)
INSERT INTO file_chunk (file, starts, bytes, data)
SELECT arriving.no, c.starts, c.bytes, c.data
FROM arriving, unnest(:starts::bigint[], :sizes::integer[], :datas::bytea[]) AS c (starts, bytes, data);

-- name: touch_if_arriving
-- A sender is slow, not gone. Zero rows: the file was given up meanwhile.
UPDATE file SET touched_at = now() WHERE no = :file AND state = 'arriving';

-- name: finish_if_arriving
-- From here on the file exists for its owner; its life is counted from now.
UPDATE file
SET state = 'ready', bytes = :bytes, lines = :lines, sha256 = :sha256, checks = :checks,
    problem_count = :problem_count, problems = :problems,
    created_at = now(), touched_at = now(), expires_at = now() + :lives::interval
WHERE no = :file AND state = 'arriving'
RETURNING *;

-- name: abandon_if_arriving
-- The upload failed: what came can be removed at once, for nobody ever saw it.
UPDATE file SET state = 'deleted', touched_at = '-infinity' WHERE no = :file AND state = 'arriving';

-- name: insert_output
-- The file of a batch's result stream, which stays where it is.
INSERT INTO file (id, owner, purpose, filename, state, bytes, lines, sha256, batch, kind, expires_at)
VALUES (:id, :owner, 'batch_output', :filename, 'ready', :bytes, :lines, :sha256, :batch, :kind, :expires_at);

-- name: find_file
-- One file as its owner sees it.
SELECT * FROM file
WHERE id = :id AND owner = :owner AND state = 'ready' AND (expires_at IS NULL OR expires_at > now());

-- name: find_place
-- Where a list goes on after a file, which may have been deleted since it was listed.
SELECT created_at, no FROM file WHERE id = :id AND owner = :owner AND sha256 IS NOT NULL;

-- name: list_newest_first
-- An owner's files before a place in time, with the problems that are shown.
SELECT no, id, owner, purpose, filename, bytes, lines, sha256, checks, problem_count, batch, kind, created_at,
    expires_at, jsonb_path_query_array(problems, '$[0 to 19]') AS problems
FROM file
WHERE owner = :owner AND state = 'ready' AND (created_at, no) < (coalesce(:created_at::timestamptz, 'infinity'), :no::bigint)
    AND (expires_at IS NULL OR expires_at > now())
    AND purpose = coalesce(:purpose, purpose)
ORDER BY created_at DESC, no DESC
LIMIT :most;

-- name: list_oldest_first
-- An owner's files after a place in time, with the problems that are shown.
SELECT no, id, owner, purpose, filename, bytes, lines, sha256, checks, problem_count, batch, kind, created_at,
    expires_at, jsonb_path_query_array(problems, '$[0 to 19]') AS problems
FROM file
WHERE owner = :owner AND state = 'ready' AND (created_at, no) > (coalesce(:created_at::timestamptz, '-infinity'), :no::bigint)
    AND (expires_at IS NULL OR expires_at > now())
    AND purpose = coalesce(:purpose, purpose)
ORDER BY created_at, no
LIMIT :most;

-- name: delete_if_ready
-- Gone for its owner at once; the bytes stay a while for downloads under way.
UPDATE file SET state = 'deleted', touched_at = now()
WHERE id = :id AND owner = :owner AND state = 'ready' AND (expires_at IS NULL OR expires_at > now())
RETURNING no;

-- name: list_chunks
-- The chunks that hold bytes [start, stop), whatever became of the file.
SELECT starts, data
FROM file_chunk
WHERE file = :file AND starts < :stop
    AND starts >= coalesce((SELECT max(starts) FROM file_chunk WHERE file = :file AND starts <= :start), 0)
ORDER BY starts
LIMIT :most;

-- name: find_input
-- The size of a file that can still be read as an input.
SELECT bytes FROM file
WHERE no = :file AND state = 'ready' AND (expires_at IS NULL OR expires_at > now());

-- name: delete_expired
-- Files whose time has come.
UPDATE file SET state = 'deleted', touched_at = now()
WHERE no = ANY (ARRAY (
    SELECT no FROM file WHERE state = 'ready' AND expires_at <= now()
    ORDER BY expires_at LIMIT 100
    FOR UPDATE SKIP LOCKED
));

-- name: give_up_arriving
-- Uploads whose sender or process is gone.
UPDATE file SET state = 'deleted', touched_at = '-infinity'
WHERE no = ANY (ARRAY (
    SELECT no FROM file WHERE state = 'arriving' AND touched_at < now() - :untouched::interval
    ORDER BY touched_at LIMIT 100
    FOR UPDATE SKIP LOCKED
));

-- name: lock_purgeable
-- A file that was deleted so long ago that no download of it can still be under way.
SELECT no FROM file
WHERE state = 'deleted' AND touched_at < now() - :kept::interval
ORDER BY touched_at LIMIT 1
FOR UPDATE SKIP LOCKED;

-- name: delete_some_chunks
-- A bounded piece of a deleted file.
DELETE FROM file_chunk
WHERE file = :file AND starts = ANY (ARRAY (
    SELECT starts FROM file_chunk WHERE file = :file ORDER BY starts LIMIT :most
));

-- name: forget_file
-- The last that is left of a deleted file.
DELETE FROM file WHERE no = :file AND state = 'deleted';
