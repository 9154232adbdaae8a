"""`bkctl cluster`."""
