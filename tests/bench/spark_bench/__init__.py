"""How fast Spark reads ledgers and streams, beside what it replaces."""
