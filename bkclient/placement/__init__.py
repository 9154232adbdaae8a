"""Placement policies: the choice of bookies for an ensemble."""
