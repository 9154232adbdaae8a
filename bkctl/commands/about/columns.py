"""Versions and completion scripts: values and their columns."""

from __future__ import annotations

import sys

from bkctl.output.views import Kind, field, shown
from bookied.process.own_version import RELEASE, own_version


@shown(
    "versions",
    kw_only=True,
    id="version",
    sentence=lambda v: (
        f"{v.program} {v.version} (Python {v.python}; protocol, files and "
        f"metadata of BookKeeper {v.release})"
    ),
)
class OwnVersion:
    """What this tool is."""

    program: str = field("Which program.", default="bkctl")
    version: str = field("Its version.")
    python: str = field("The version of Python.")
    release: str = field("The BookKeeper release it speaks.")
    """The BookKeeper release whose protocol, files and metadata it speaks."""


@shown("members", kw_only=True)
class MemberVersion:
    """One member's version; ``why`` says why it is not known."""

    member: str = field("bkctl, metadata, or a bookie.")
    kind: str = field("tool, layout, bookied, Java bookie or bookie.")
    state: str = field("ok, writable, read-only or down.", kind=Kind.STATE)
    version: str | None = field("Its version.", default=None)
    why: str = field("Why that is not known.", of=lambda v: v.why or None, rank=1, default="")


def own() -> OwnVersion:
    """Return the version of this tool."""
    python = ".".join(map(str, sys.version_info[:3]))
    return OwnVersion(version=own_version(), python=python, release=RELEASE)


@shown("scripts", sentence=lambda v: v.text.rstrip("\n"))
class Script:
    """What a shell is told so that it completes."""

    shell: str = field("Whose script it is.")
    text: str = field("What the shell is to read.", name="script")
