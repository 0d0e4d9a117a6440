"""Changes the state of batches and files and runs no request: one round a job."""
