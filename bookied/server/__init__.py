"""Connections of clients: requests in, responses out."""
