"""Backup of a cluster's metadata, and its restore."""
