"""Authentication and TLS of a connection."""
