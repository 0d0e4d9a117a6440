"""Measures speed and memory: prints tables, asserts nothing. `make bench` runs them all."""
