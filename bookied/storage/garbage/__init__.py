"""Garbage: ledgers that are gone from the metadata, and the space they take in entry logs."""
