"""Repair of the cluster by bookies: autorecovery, and a bookie's own data integrity."""
