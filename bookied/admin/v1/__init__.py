"""``/api/v1``: Java's HTTP API."""
