"""Check a stopped bookie's directories."""
