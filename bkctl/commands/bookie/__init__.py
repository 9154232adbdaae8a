"""`bkctl bookie`."""
