"""The HTTP API of a bookie: the client, and a module for each group of requests."""
