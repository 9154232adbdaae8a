"""Both clients, both kinds of bookies, one ledger: whatever happens, both find the same."""
