"""The directories of a bookie: identity, cookies, locks, notes and free space."""
