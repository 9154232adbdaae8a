"""Which names a request may have in its ``Host`` header."""

from __future__ import annotations

import re
from collections.abc import Callable
from ipaddress import ip_address
from typing import Final

_ANY: Final = "*"
_LOCAL_SUFFIXES: Final = (".localhost", ".local", ".internal", ".svc", ".localdomain")
"""Names below these do not exist in the public DNS."""

_HOST: Final = re.compile(
    r"(?:\[(?P<address>[0-9a-f:.%]+)\]|(?P<name>[a-z0-9._-]*))(?::[0-9]{0,5})?"
)
"""A name or an address, and a port. Browsers and proxies may cut other text in different places."""


class AllowedHosts:
    """Which names a request may have in ``Host``: those of a page in a browser are not among them.

    A name that a stranger owns can be made to point here (DNS rebinding), and what a browser loads
    from there would have our answers. An address cannot, nor a name without a dot, nor one below a
    domain that the public DNS does not have.
    """

    def __init__(self, names: Callable[[], frozenset[str]]) -> None:
        """Take the names of this host, in lower case, ``*`` among them for any; asked each time."""
        self._names = names

    def allows(self, header: str | None) -> bool:
        """Return whether a request with this header is for us; one without is not a browser's."""
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
