"""What a user can ask of a batch, one module a verb."""
