"""Indexes: map a ledger id and entry id to a location in an entry log."""
