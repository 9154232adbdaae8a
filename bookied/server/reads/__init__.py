"""Reads: those of entries in memory in one loop, the rest from the disk in batches."""
