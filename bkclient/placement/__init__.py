"""Placement policies: which bookies form or join an ensemble."""
