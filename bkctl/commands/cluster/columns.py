"""Bookies, clusters and plans: values and their columns."""

from __future__ import annotations

import attrs

from bkctl.output.views import column, shown


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
