"""Commands that change a stopped bookie's directories."""
