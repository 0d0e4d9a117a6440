-- The first and the last line of a block, so that a page of results looks only into blocks that can hold one of its
-- lines. Null in blocks of before.
ALTER TABLE block ADD COLUMN first integer, ADD COLUMN last integer;
