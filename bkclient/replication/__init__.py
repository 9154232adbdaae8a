"""Replication: check ledgers, find lost replicas, copy them, retire bookies, steer autorecovery."""
