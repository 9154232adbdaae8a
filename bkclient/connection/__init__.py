"""Connections to bookies: handshake, TLS, requests and answers, the pool."""
