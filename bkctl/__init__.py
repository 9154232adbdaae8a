"""The command line for BookKeeper clusters, ledgers and bookies."""
