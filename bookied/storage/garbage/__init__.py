"""Garbage: ledgers that are gone from the metadata, and the room they take in entry logs."""
