"""How profiles are shown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from bkctl.commands.settings.profile_work import ProfileChanged, ProfileRow
from bkctl.output.emit import WIDE, Field, Kind, View

_PROFILE: Final = (
    Field("profile", "Its name.", lambda v: v.profile.name),
    Field("default", "Whether commands use it that name none.", lambda v: v.default, Kind.FLAG),
    Field("production", "Whether it is marked.", lambda v: v.profile.production, Kind.FLAG),
    Field("service_uri", "The metadata service.", lambda v: v.profile.service_uri),
    Field("conf", "The settings file.", lambda v: v.profile.conf, rank=2),
    Field("output", "The form of results without -o.", lambda v: v.profile.output, rank=3),
    Field(
        "admin_token_file",
        "The token for what bookies are asked over HTTP.",
        lambda v: v.profile.admin_token_file,
        rank=WIDE,
    ),
    Field("tls", "Its files for TLS.", lambda v: dict(v.profile.tls), Kind.NESTED, rank=WIDE),
    Field("client", "Keys of the settings file.", lambda v: v.client, Kind.NESTED, rank=WIDE),
)

PROFILE_VIEWS: Final[Mapping[type, View]] = {
    ProfileRow: View("profiles", _PROFILE, "profile"),
    ProfileChanged: View(
        "profiles",
        (
            Field("profile", "Its name.", lambda v: v.name),
            Field("action", "What was done.", lambda v: v.action),
            Field("path", "The file.", lambda v: v.path),
        ),
        "profile",
        sentence=lambda v: (
            f"profile {v.name} {v.action} ({v.path})" if v.action != "saved" else f"{v.path} saved"
        ),
    ),
}
