"""The index of DbLedgerStorage, in RocksDB databases as BookKeeper writes them."""
