-- Of what a worker runs, the requests of batches that start nothing more: they are in no queue.
ALTER TABLE beat ADD COLUMN ending integer NOT NULL DEFAULT 0;
