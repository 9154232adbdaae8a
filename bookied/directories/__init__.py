"""A bookie's directories: identity, cookie, locks, notes, free space."""
