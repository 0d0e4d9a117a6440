"""Overnight: batch inference on your own models."""

__version__ = "0.1.0"
