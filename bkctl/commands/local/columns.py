"""The columns of local clusters."""

from __future__ import annotations

import attrs

from bkctl.output.views import BOOKIE, WIDE, Column, Kind, field, shown
from bkctl.session.session import Session


@shown("bookies")
class LocalBookie:
    """One bookie of a local cluster."""

    bookie_id: str = field(BOOKIE)
    state: str = field("State of the bookie.")
    pid: int | None = field("Process id of the bookie.")
    directory: str = field("Directory of the bookie's journal and ledgers.", rank=1)
    log: str = field("Log file of the bookie.", rank=WIDE)


@shown("zookeepers")
class LocalZooKeeper:
    """A ZooKeeper server that runs on this machine."""

    address: str = field("Address that ZooKeeper listens on.")
    uri: str = field("Service URI for `bkctl -u URI cluster init`.")
    directory: str = field("The directory of the cluster.")
    pid: int = field("Process id of ZooKeeper.")


@shown(
    "clusters",
    Column(
        "bookies",
        "Bookies of the cluster.",
        lambda v: [attrs.asdict(bookie) for bookie in v.bookies],
        Kind.NESTED,
    ),
)
class LocalSummary:
    """A local cluster, for machine forms."""

    uri: str = field("The metadata service.")
    directory: str = field("The directory of the cluster.")
    bookies: tuple[LocalBookie, ...]


def show(session: Session, found: LocalSummary) -> None:
    """Print the bookies, or the complete cluster in forms with nested values."""
    if session.options.output in {None, "table", "wide", "id"}:
        session.emit_all(found.bookies, LocalBookie)
    else:
        session.emit(found)
    session.finish()
    session.host.stdout.flush()
