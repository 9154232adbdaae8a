"""`bkctl export`."""
