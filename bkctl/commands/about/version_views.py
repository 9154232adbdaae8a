"""Versions of the tool and of a cluster's members, and how they are shown."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Final

import attrs

from bkctl.cli.own_version import RELEASE, own_version
from bkctl.output.emit import Field, Kind, View


@attrs.frozen(kw_only=True)
class OwnVersion:
    """What this tool is."""

    program: str = "bkctl"
    version: str
    python: str
    release: str
    """The BookKeeper release whose protocol, files and metadata it speaks."""


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


VERSION_VIEWS: Final[Mapping[type, View]] = {
    OwnVersion: View(
        "versions",
        (
            Field("program", "Which program.", lambda v: v.program),
            Field("version", "Its version.", lambda v: v.version),
            Field("python", "The version of Python.", lambda v: v.python),
            Field("release", "The BookKeeper release it speaks.", lambda v: v.release),
        ),
        "version",
        sentence=lambda v: (
            f"{v.program} {v.version} (Python {v.python}; protocol, files and "
            f"metadata of BookKeeper {v.release})"
        ),
    ),
    MemberVersion: View(
        "members",
        (
            Field("member", "bkctl, metadata, or a bookie.", lambda v: v.member),
            Field("kind", "tool, layout, bookied, Java bookie or bookie.", lambda v: v.kind),
            Field("state", "ok, writable, read-only or down.", lambda v: v.state, Kind.STATE),
            Field("version", "Its version.", lambda v: v.version),
            Field("why", "Why that is not known.", lambda v: v.why or None, rank=1),
        ),
        "member",
    ),
}
