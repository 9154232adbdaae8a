"""The version of this distribution. Leans on nothing: `bkctl --version` needs no more."""

from __future__ import annotations

from typing import Final

RELEASE: Final = "4.18.0"
"""The BookKeeper release whose protocol, files and metadata are spoken."""


def own_version() -> str:
    """Return the number of the installed version."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("bkctl")
    except PackageNotFoundError:
        return "(not installed)"
