"""Repair and convert a stopped bookie's directories."""
