"""The form of ``/api/v1``'s answers: JSON as Java prints it, and texts."""

from __future__ import annotations

import json
from typing import Final

from bookied.admin.http.requests_and_replies import JSON, NOT_FOUND, HttpReply

OK: Final = 200


def in_json(value: object, status: int = OK) -> HttpReply:
    """Return a value as JSON in the form of Java's bookie."""
    body = json.dumps(value, indent=2, separators=(",", " : "), ensure_ascii=False)
    return HttpReply(status, body, JSON)


def text(body: str) -> HttpReply:
    """Return a body that is not JSON, with status 200."""
    return HttpReply(OK, body)


def refusal(body: str, status: int = NOT_FOUND) -> HttpReply:
    """Return a refusal; Java's usual status is 404."""
    return HttpReply(status, body)
