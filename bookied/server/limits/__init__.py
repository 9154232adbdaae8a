"""Limits of connections: memory, timeouts, back pressure."""
