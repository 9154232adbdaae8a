"""Batches of messages, split without one object per message."""
