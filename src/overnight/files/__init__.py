"""Stored files: what was uploaded, and what a batch left."""
