"""What one task of an export does, on Spark or not: read ranges of entries, write Parquet."""
