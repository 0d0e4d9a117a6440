-- Blocks that were leased and went back, such as those of a dead worker: whoever holds other blocks of their batch looks
-- for them first.
CREATE INDEX block_returned ON block (batch, seq) WHERE state = 'ready' AND leases > 0;
