"""Reading one ledger: from which bookies, how far, and as it grows."""
