"""The layout of a cluster's metadata: /ledgers/LAYOUT.

Agrees byte for byte with BookKeeper 4.18.0, LedgerLayout.
"""

from __future__ import annotations

import re
from typing import Final

import attrs

from wire.errors import FormatError

_FACTORY: Final = "org.apache.bookkeeper.meta.{}LedgerManagerFactory"
LAYOUT_FACTORIES: Final[dict[str, str]] = {
    "flat": _FACTORY.format("Flat"),
    "legacyhierarchical": _FACTORY.format("LegacyHierarchical"),
    "hierarchical": _FACTORY.format("Hierarchical"),
    "longhierarchical": _FACTORY.format("LongHierarchical"),
}
"""The Java class in the LAYOUT node, by the layout's short name."""

_LAYOUT_FORMATS: Final = (1, 2)
_LAYOUT: Final = re.compile(rb"(-?[0-9]{1,9})\n([^:\n]*):(-?[0-9]{1,9})(?:\n|\Z)")


@attrs.frozen
class Layout:
    """The LAYOUT node: Java's factory class, and its manager version (always 1 so far)."""

    factory: str
    manager_version: int = 1


def encode_layout(layout: Layout) -> bytes:
    """Return the LAYOUT node in format 2."""
    return f"2\n{layout.factory}:{layout.manager_version}".encode()


def decode_layout(data: bytes) -> Layout:
    """Parse the LAYOUT node; in format 1 the factory is a short name.

    Raises:
        FormatError: not a layout that Java would read.
    """
    match = _LAYOUT.match(data)
    if match is None:
        raise FormatError(f"no ledger layout: {data[:80]!r}")
    layout_format, factory, version = match.groups()
    if int(layout_format) not in _LAYOUT_FORMATS:
        raise FormatError(f"ledger layout of format {int(layout_format)} is unknown")
    return Layout(factory.decode("utf-8", "replace"), int(version))
