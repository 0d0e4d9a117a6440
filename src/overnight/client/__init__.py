"""What users import to talk to a server; knows nothing of the rest of the house."""
