"""One task of an export, on Spark or not: reads ranges of entries, writes Parquet."""
