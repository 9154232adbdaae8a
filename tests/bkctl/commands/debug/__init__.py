"""Tests of `bkctl debug`."""
