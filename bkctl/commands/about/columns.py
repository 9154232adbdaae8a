"""Versions and completion scripts: values and their columns."""

from __future__ import annotations

import sys

import attrs

from bkctl.output.views import Kind, column, shown
from bookied.process.own_version import RELEASE, own_version


@shown(
    "versions",
    column("program", "Which program."),
    column("version", "Its version."),
    column("python", "The version of Python."),
    column("release", "The BookKeeper release it speaks."),
    id="version",
    sentence=lambda v: (
        f"{v.program} {v.version} (Python {v.python}; protocol, files and "
        f"metadata of BookKeeper {v.release})"
    ),
)
@attrs.frozen(kw_only=True)
class OwnVersion:
    """What this tool is."""

    program: str = "bkctl"
    version: str
    python: str
    release: str
    """The BookKeeper release whose protocol, files and metadata it speaks."""


@shown(
    "members",
    column("member", "bkctl, metadata, or a bookie."),
    column("kind", "tool, layout, bookied, Java bookie or bookie."),
    column("state", "ok, writable, read-only or down.", kind=Kind.STATE),
    column("version", "Its version."),
    column("why", "Why that is not known.", lambda v: v.why or None, rank=1),
)
@attrs.frozen(kw_only=True)
class MemberVersion:
    """One member's version; ``why`` says why it is not known."""

    member: str
    kind: str
    state: str
    version: str | None = None
    why: str = ""


def own() -> OwnVersion:
    """Return the version of this tool."""
    python = ".".join(map(str, sys.version_info[:3]))
    return OwnVersion(version=own_version(), python=python, release=RELEASE)


@shown(
    "scripts",
    column("shell", "Whose script it is."),
    column("script", "What the shell is to read.", "text"),
    sentence=lambda v: v.text.rstrip("\n"),
)
@attrs.frozen
class Script:
    """What a shell is told so that it completes."""

    shell: str
    text: str
