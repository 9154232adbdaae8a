"""A request, its client and its answer as values, for both versions of the API."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, TypeVar

import attrs

from wire.errors import BookKeeperError

JSON: Final = "application/json"
TEXT: Final = "text/plain; charset=utf-8"

BAD_REQUEST: Final = 400
UNAUTHORIZED: Final = 401
FORBIDDEN: Final = 403
NOT_FOUND: Final = 404
METHOD_NOT_ALLOWED: Final = 405
CONFLICT: Final = 409
INTERNAL_ERROR: Final = 500
MISDIRECTED: Final = 421
UNAVAILABLE: Final = 503

NUMBER_MAX: Final = 2**63 - 1
"""The highest possible id."""

DELAY_S_MAX: Final = 2**31 - 1
"""The longest delay that Java's auditor can read."""

T = TypeVar("T", bool, int, str)


class BadHttpRequestError(BookKeeperError):
    """The request has an invalid value."""


@attrs.frozen
class Credentials:
    """The credentials of a request.

    ``certified`` is the name in a verified certificate; None without one. ``host`` is the client's
    address.
    """

    authorization: str = attrs.field(default="", repr=False)
    certified: str | None = None
    host: str = ""


@attrs.frozen(kw_only=True)
class HttpRequest:
    """A request. ``path`` has the values of the path's variable parts."""

    method: str = "GET"
    query: Mapping[str, str] = attrs.field(factory=dict)
    path: Mapping[str, str] = attrs.field(factory=dict)
    body: bytes = b""

    @property
    def object(self) -> dict[str, Any]:
        """The body, which must be a JSON object.

        Raises:
            BadHttpRequestError: the body is not a JSON object.
        """
        try:
            found = json.loads(self.body)
        except (ValueError, RecursionError) as error:
            raise BadHttpRequestError(f"the body is not valid JSON: {error}") from error
        if not isinstance(found, dict):
            raise BadHttpRequestError('the body is not a JSON object; send {"name": value}')
        return found


@attrs.frozen
class HttpReply:
    """An answer."""

    status: int
    body: str
    content_type: str = TEXT
    headers: Mapping[str, str] = attrs.field(factory=dict)


def number(text: str, name: str) -> int:
    """Return a number that is not negative.

    Raises:
        BadHttpRequestError: the text is not a number.
    """
    if not text.isascii() or not text.isdecimal() or len(text) > len(str(NUMBER_MAX)):
        raise BadHttpRequestError(f"{name} is not a whole number: {text!r}; give 0 to {NUMBER_MAX}")
    found = int(text)
    if found > NUMBER_MAX:
        raise BadHttpRequestError(f"{name} is too large: {text}; give 0 to {NUMBER_MAX}")
    return found


def check_delay(delay_s: int, name: str) -> None:
    """Refuse a delay that an auditor cannot wait for.

    Raises:
        BadHttpRequestError: the delay is negative or too long.
    """
    if not 0 <= delay_s <= DELAY_S_MAX:
        raise BadHttpRequestError(
            f"{name} is not a delay in seconds: {delay_s}; give 0 to {DELAY_S_MAX}"
        )
