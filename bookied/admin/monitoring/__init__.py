"""Metrics of a bookie, under Java's names and our own."""
