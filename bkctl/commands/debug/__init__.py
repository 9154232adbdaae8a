"""`bkctl debug`."""
