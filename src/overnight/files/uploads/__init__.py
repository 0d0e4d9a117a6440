"""Uploads: files that are sent in parts and put together at the end."""
