"""What Java calls versions and cipher suites, and what OpenSSL calls them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

VERSIONS: Final = ("TLSv1.2", "TLSv1.3")
"""What is spoken; older ones are broken, and neither Java nor OpenSSL still has them on."""

_OLD_VERSIONS: Final = frozenset({"SSLv2Hello", "SSLv3", "TLSv1", "TLSv1.1"})
_NEW_SUITE: Final = re.compile(r"TLS_(AES_128_GCM|AES_256_GCM|CHACHA20_POLY1305)_SHA(256|384)")
_OLD_SUITE: Final = re.compile(
    r"TLS_(?:(ECDHE|DHE)_)?(RSA|ECDSA)_WITH_(AES_\d+_(?:GCM|CBC)|CHACHA20_POLY1305)_(SHA\d*)"
)
_OPENSSL_SUITE: Final = re.compile(r"[A-Z0-9]+(-[A-Z0-9]+)+")


def split(listed: Iterable[str]) -> tuple[str, ...]:
    """Return the names in a setting: commas may have been escaped, as Java needs it."""
    return tuple(name.strip() for text in listed for name in text.split(",") if name.strip())


def versions_refused(listed: Iterable[str]) -> str | None:
    """Return what is wrong with a list of versions; old ones beside a new one are left out."""
    names = split(listed)
    unknown = [name for name in names if name not in {*VERSIONS, *_OLD_VERSIONS}]
    if unknown:
        return (
            f"names {', '.join(unknown)}, which is not a version of TLS; give {', '.join(VERSIONS)}"
        )
    if names and not set(names) & set(VERSIONS):
        return f"names no version of TLS that is safe; give {', '.join(VERSIONS)}"
    return None


def versions(listed: Iterable[str]) -> tuple[str, ...]:
    """Return the versions to speak, lowest first; all there are for an empty list."""
    names = split(listed)
    return tuple(name for name in VERSIONS if not names or name in names)


def suites_refused(listed: Iterable[str]) -> str | None:
    """Return what is wrong with a list of cipher suites."""
    unknown = [name for name in split(listed) if openssl_suite(name) is None]
    return f"names {', '.join(unknown)}, which is not a known cipher suite" if unknown else None


def openssl_suite(name: str) -> str | None:
    """Return OpenSSL's name of a suite; ``None`` for an unknown name, or one that neither offers.

    The suites of TLS 1.3 have the same name in both.
    """
    if is_tls13(name):
        return name
    found = _OLD_SUITE.fullmatch(name)
    if found is None:
        is_one = _OPENSSL_SUITE.fullmatch(name) and not name.startswith("TLS")
        return name if is_one else None
    exchange, signed, cipher, digest = found.groups()
    cipher = cipher.replace("AES_", "AES").replace("_CBC", "").replace("_", "-")
    parts = [*([exchange, signed] if exchange else []), cipher]
    return "-".join(parts if cipher.startswith("CHACHA20") else [*parts, digest])


def is_tls13(name: str) -> bool:
    """Return whether a suite is one of TLS 1.3."""
    return _NEW_SUITE.fullmatch(name) is not None
