"""`bkctl autorecovery`."""
