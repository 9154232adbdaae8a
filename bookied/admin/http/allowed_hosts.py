"""The names that a request may have in its ``Host`` header."""

from __future__ import annotations

import re
from collections.abc import Callable
from ipaddress import ip_address
from typing import Final

_ANY: Final = "*"
_LOCAL_SUFFIXES: Final = (".localhost", ".local", ".internal", ".svc", ".localdomain")
"""The suffixes of names that the public DNS does not have."""

_HOST: Final = re.compile(
    r"(?:\[(?P<address>[0-9a-f:.%]+)\]|(?P<name>[a-z0-9._-]*))(?::[0-9]{0,5})?"
)
"""A name or an address, and a port. Browsers and proxies may split other text differently."""


class AllowedHosts:
    """The names that a request may have in ``Host``, so that a web page cannot read the API.

    A stranger can make the address of a name that he owns point to this host (DNS rebinding), and a
    page of that name in a browser would get the API's answers. That is not possible with an
    address, a name without a dot, or a name below a domain that the public DNS does not have.
    """

    def __init__(self, names: Callable[[], frozenset[str]]) -> None:
        """``names`` returns this host's names in lower case, ``*`` for any.

        Called for each request.
        """
        self._names = names

    def allows(self, header: str | None) -> bool:
        """Return whether the header names this host; a request without it is not a browser's."""
        if header is None:
            return True
        found = _HOST.fullmatch(header.strip().lower())
        if found is None:
            return False
        host = (found["address"] or found["name"]).rstrip(".")
        if _is_address(host):
            return True
        if found["address"]:
            return False
        names = self._names()
        is_local = "." not in host or host.endswith(_LOCAL_SUFFIXES)
        return is_local or host in names or _ANY in names


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
