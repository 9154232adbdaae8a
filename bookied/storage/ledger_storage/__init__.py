"""LedgerStorage: write cache, entry logs and index as one."""
