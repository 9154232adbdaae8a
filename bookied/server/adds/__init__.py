"""Adds that come many at a time, and are answered without an object for each."""
