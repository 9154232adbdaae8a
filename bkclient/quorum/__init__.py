"""Quorum rules: plain functions of values, with no I/O."""
