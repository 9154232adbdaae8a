"""Repairs and conversions of a stopped bookie's directories."""
