"""Frames: messages to bytes and back, in V2 and V3, and fast paths."""
