"""Export with Spark: plan and data source."""
