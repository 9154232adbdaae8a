"""Settings of a bookie."""
