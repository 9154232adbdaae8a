"""`bkctl topic`."""
