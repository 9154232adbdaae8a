"""Forget or remove the metadata of a cluster, and see before what would be lost."""
