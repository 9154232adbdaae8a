"""``/api/v2``: bookied's own HTTP API."""
