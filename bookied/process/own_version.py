"""The version of this distribution.

It imports little: `bkctl --version` imports only this module.
"""

from __future__ import annotations

from typing import Final

RELEASE: Final = "4.18.0"
"""The BookKeeper release with the same protocol, files and metadata."""


def own_version() -> str:
    """Return the installed version."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("bkctl")
    except PackageNotFoundError:
        return "(not installed)"
