"""`bkctl ledger`."""
