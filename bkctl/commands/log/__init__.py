"""`bkctl log`."""
