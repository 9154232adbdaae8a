"""The index of DbLedgerStorage: RocksDB databases in BookKeeper's format."""
