"""What bookies, clusters and plans look like in tables and machine forms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import attrs

from bkctl.output.emit import WIDE, Field, Kind, View

if TYPE_CHECKING:
    from bkctl.bookies.admin_client import HttpAddress
    from wire.ids import BookieId


@attrs.frozen
class BookieSummary:
    """One bookie: what metadata says, and what it says itself where it could be asked."""

    bookie_id: BookieId
    state: str
    address: str | None = None
    free: int | None = None
    total: int | None = None
    properties: Mapping[str, str] = attrs.field(factory=dict)
    rack: str | None = None
    """Its network location, where a topology script is configured."""
    unreachable: str = ""
    """Why it did not tell its disks; empty if it did, or was not asked."""
    http: HttpAddress | None = None
    """Where its HTTP server listens, if it has published one."""
    version: str | None = None
    uptime_s: float | None = None

    @property
    def host(self) -> str:
        return (self.address or "").rpartition(":")[0]


@attrs.frozen
class HealthCheck:
    """Whether clients may quarantine bookies that fail."""

    enabled: bool
    changed: bool


@attrs.frozen
class ClusterId:
    """The cluster's instance id."""

    instance_id: str


@attrs.frozen
class ClusterCreated:
    """A new cluster."""

    uri: str
    instance_id: str
    layout: str


@attrs.frozen
class Plan:
    """What a dry run would have done."""

    steps: tuple[str, ...]


VIEWS: Final[Mapping[type, View]] = {
    Plan: View(
        "plans",
        (Field("would", "The steps, in order.", lambda v: list(v.steps), Kind.NESTED),),
        "would",
        sentence=lambda v: "\n".join(f"would {step}" for step in v.steps or ("change nothing",)),
    ),
    BookieSummary: View(
        "bookies",
        (
            Field("bookie_id", "The bookie.", lambda v: v.bookie_id, header="BOOKIE"),
            Field("state", "writable, read-only or down.", lambda v: v.state, Kind.STATE),
            Field("address", "Where it listens.", lambda v: v.address, rank=2),
            Field("free", "Free bytes on its disks.", lambda v: v.free, Kind.BYTES, rank=1),
            Field("total", "Bytes of its disks.", lambda v: v.total, Kind.BYTES, rank=1),
            Field(
                "properties",
                "What else it published.",
                lambda v: dict(v.properties),
                Kind.NESTED,
                rank=WIDE,
                cell=lambda v: " ".join(f"{k}={t}" for k, t in v.properties.items()) or "-",
            ),
            Field("rack", "Its network location.", lambda v: v.rack, rank=WIDE),
            Field("version", "What it runs, where it tells.", lambda v: v.version, rank=WIDE),
            Field(
                "uptime_s",
                "How long it has been up, where it tells.",
                lambda v: v.uptime_s,
                Kind.SECONDS,
                rank=WIDE,
                header="UPTIME",
            ),
        ),
        "bookie_id",
        healthy=lambda v: v.state == "writable",
    ),
    HealthCheck: View(
        "switches",
        (
            Field("enabled", "Whether they may.", lambda v: v.enabled, Kind.FLAG),
            Field("changed", "Whether it was not so before.", lambda v: v.changed, Kind.FLAG),
        ),
        "enabled",
        sentence=lambda v: (
            f"the health check of bookies is {'enabled' if v.enabled else 'disabled'}"
        ),
    ),
    ClusterId: View(
        "clusters",
        (Field("instance_id", "The cluster's id.", lambda v: v.instance_id),),
        "instance_id",
        bare=True,
    ),
    ClusterCreated: View(
        "clusters",
        (
            Field("uri", "The metadata service.", lambda v: v.uri),
            Field("instance_id", "The cluster's id.", lambda v: v.instance_id),
            Field("layout", "Layout of the metadata.", lambda v: v.layout),
        ),
        "instance_id",
    ),
}
