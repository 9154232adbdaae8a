"""Commands that read a stopped bookie's directories."""
