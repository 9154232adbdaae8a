"""A bookie, and autorecovery, as services: built from their parts, started, and stopped."""
