"""`bkctl cookie`."""
