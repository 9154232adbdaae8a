"""How fast Spark reads ledgers, topics and streams, beside what it replaces."""
