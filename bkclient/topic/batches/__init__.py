"""Batches of messages, taken apart without an object for each message."""
