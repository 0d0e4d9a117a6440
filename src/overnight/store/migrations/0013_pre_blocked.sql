-- Why nothing of a model can start at a worker's servers now; null where something can.
ALTER TABLE served ADD COLUMN blocked text;
