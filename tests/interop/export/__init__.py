"""Exports to real file systems of others."""
