"""Exports with Spark, and the Spark data source ``bookkeeper``."""
