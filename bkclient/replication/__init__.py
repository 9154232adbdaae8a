"""Replication: check ledgers, find and copy lost replicas, retire bookies, control autorecovery."""
