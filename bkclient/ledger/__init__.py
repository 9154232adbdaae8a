"""One ledger: its writer, its reader, and recovery."""
