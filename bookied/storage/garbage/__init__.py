"""Garbage: ledgers that were deleted from the metadata, and their space in entry logs."""
