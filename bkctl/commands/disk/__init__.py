"""`bkctl disk`: a stopped bookie's directories."""
