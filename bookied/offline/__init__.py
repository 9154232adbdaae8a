"""A stopped bookie's directories as values."""
