"""`bkctl local`: a cluster on this machine."""
