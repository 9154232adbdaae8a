"""The settings of a bookie."""
