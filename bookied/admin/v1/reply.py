"""How ``/api/v1`` puts its answers: JSON as Java prints it, and texts."""

from __future__ import annotations

import json
from typing import Final

from bookied.admin.http.messages import JSON, NOT_FOUND, HttpReply

OK: Final = 200


def in_json(value: object, status: int = OK) -> HttpReply:
    """Return a value as Java's bookie prints it."""
    body = json.dumps(value, indent=2, separators=(",", " : "), ensure_ascii=False)
    return HttpReply(status, body, JSON)


def text(body: str) -> HttpReply:
    """Return a body that is not JSON, with status 200."""
    return HttpReply(OK, body)


def refusal(body: str, status: int = NOT_FOUND) -> HttpReply:
    """Return why not; Java's favourite is 404."""
    return HttpReply(status, body)
