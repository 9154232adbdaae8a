"""`bkctl config` and `bkctl profile`."""
