"""``/api/v2``: the HTTP API of ours."""
