"""The directories of a stopped bookie: readers, checks and repairs."""
