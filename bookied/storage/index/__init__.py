"""Indexes: from ledger and entry id to a place in an entry log."""
