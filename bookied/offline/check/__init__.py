"""The check of a stopped bookie's directories."""
