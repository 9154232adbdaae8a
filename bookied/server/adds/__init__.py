"""Adds that are stored and answered in batches, without an object for each add."""
