"""Local clusters: values and their columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from bkctl.output.views import BOOKIE, WIDE, Kind, column, shown

if TYPE_CHECKING:
    from bkctl.session.session import Session


@shown(
    "bookies",
    BOOKIE,
    column("state", "Its state.", kind=Kind.STATE),
    column("pid", "Its process."),
    column("directory", "Its journal and ledgers.", rank=1),
    column("log", "Its log.", rank=WIDE),
)
@attrs.frozen
class LocalBookie:
    """One bookie of a local cluster."""

    bookie_id: str
    state: str
    pid: int | None
    directory: str
    log: str


@shown(
    "zookeepers",
    column("address", "Where it listens."),
    column("uri", "For `bkctl -u URI cluster init`."),
    column("directory", "The directory of the cluster."),
    column("pid", "Its process."),
)
@attrs.frozen
class LocalZooKeeper:
    """A ZooKeeper server that runs on this machine."""

    address: str
    pid: int
    directory: str
    uri: str
    """For a cluster in it, once `bkctl cluster init` has made one."""


@shown(
    "clusters",
    column("uri", "The metadata service."),
    column("directory", "The directory of the cluster."),
    column(
        "bookies",
        "Its bookies.",
        lambda v: [attrs.asdict(bookie) for bookie in v.bookies],
        Kind.NESTED,
    ),
)
@attrs.frozen
class LocalSummary:
    """A local cluster, for programs."""

    uri: str
    directory: str
    bookies: tuple[LocalBookie, ...]


def show(session: Session, found: LocalSummary) -> None:
    """Print the bookies, or the whole cluster in the forms that can hold one."""
    if session.options.output in {None, "table", "wide", "id"}:
        session.emit_all(found.bookies, LocalBookie)
    else:
        session.emit(found)
    session.finish()
    session.host.stdout.flush()
