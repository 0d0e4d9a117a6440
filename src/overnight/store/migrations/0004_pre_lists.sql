-- Lists of batches by their state: an owner's few unfinished or failed ones among very many that are completed.
-- The retry of a batch that has not ended yet. And the names of deleted batches whose time is over.
--
-- All numbers are above 0, and only lists say so: no other statement that asks for a state is led to walk through
-- this index of all batches instead of the small one of the unfinished.

CREATE INDEX batch_of_owner_by_status ON batch (owner, status, (-no)) WHERE no > 0;
CREATE INDEX batch_unfinished_retry ON batch (retry_of)
    WHERE retry_of IS NOT NULL AND status IN ('validating', 'in_progress', 'finalizing', 'cancelling');
CREATE INDEX deleted_batch_to_forget ON deleted_batch (deleted_at) WHERE emptied;
