"""Mutants: the code broken at one place, and whether tests notice."""
