"""Reads of entries: from memory in one loop, the others from the disk in batches."""
