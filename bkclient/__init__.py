"""A BookKeeper client: ledgers, metadata drivers, placement, repair."""
