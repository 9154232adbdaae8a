"""Autorecovery: an elected auditor marks ledgers that lack replicas, workers repair them."""
