"""`bkctl doctor`."""
