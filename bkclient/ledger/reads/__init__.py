"""Reads of one ledger: the choice of bookies, ranges, and tailing."""
