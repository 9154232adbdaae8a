"""Autorecovery: an elected auditor marks ledgers that lack replicas, and workers repair them."""
