"""Bookies, clusters and plans: values and their columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import attrs

from bkctl.output.views import BOOKIE, WIDE, Kind, column, shown

if TYPE_CHECKING:
    from bkctl.bookies.admin_client import HttpAddress
    from wire.ids import BookieId


@shown(
    "bookies",
    BOOKIE,
    column("state", "writable, read-only or down.", kind=Kind.STATE),
    column("address", "Where it listens.", rank=2),
    column("free", "Free bytes on its disks.", kind=Kind.BYTES, rank=1),
    column("total", "Bytes of its disks.", kind=Kind.BYTES, rank=1),
    column(
        "properties",
        "What else it published.",
        rank=WIDE,
        cell=lambda v: " ".join(f"{k}={t}" for k, t in v.properties.items()) or "-",
    ),
    column("rack", "Its network location.", rank=WIDE),
    column("version", "What it runs, where it tells.", rank=WIDE),
    column(
        "uptime_s",
        "How long it has been up, where it tells.",
        kind=Kind.SECONDS,
        rank=WIDE,
        header="UPTIME",
    ),
    healthy=lambda v: v.state == "writable",
)
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


@shown(
    "switches",
    column("enabled", "Whether they may."),
    column("changed", "Whether it was not so before."),
    sentence=lambda v: f"the health check of bookies is {'enabled' if v.enabled else 'disabled'}",
)
@attrs.frozen
class HealthCheck:
    """Whether clients may quarantine bookies that fail."""

    enabled: bool
    changed: bool


@shown("clusters", column("instance_id", "The cluster's id."), bare=True)
@attrs.frozen
class ClusterId:
    """The cluster's instance id."""

    instance_id: str


@shown(
    "clusters",
    column("uri", "The metadata service."),
    column("instance_id", "The cluster's id."),
    column("layout", "Layout of the metadata."),
    id="instance_id",
)
@attrs.frozen
class ClusterCreated:
    """A new cluster."""

    uri: str
    instance_id: str
    layout: str


@shown(
    "plans",
    column("would", "The steps, in order.", "steps"),
    sentence=lambda v: "\n".join(f"would {step}" for step in v.steps or ("change nothing",)),
)
@attrs.frozen
class Plan:
    """What a dry run would have done."""

    steps: tuple[str, ...]
