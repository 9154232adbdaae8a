"""Adding to one ledger: ensemble changes, force, and where the ledger ends."""
