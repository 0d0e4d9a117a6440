"""What people ask of a model and wait for: passed on to a route at once, beside the batches."""
