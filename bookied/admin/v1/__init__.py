"""``/api/v1``: the HTTP API that Java has."""
