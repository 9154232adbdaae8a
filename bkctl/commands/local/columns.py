"""Local clusters: values and their columns."""

from __future__ import annotations

import attrs

from bkctl.output.views import BOOKIE, WIDE, Column, Kind, field, shown
from bkctl.session.session import Session


@shown("bookies")
class LocalBookie:
    """One bookie of a local cluster."""

    bookie_id: str = field(BOOKIE)
    state: str = field("Its state.", kind=Kind.STATE)
    pid: int | None = field("Its process.")
    directory: str = field("Its journal and ledgers.", rank=1)
    log: str = field("Its log.", rank=WIDE)


@shown("zookeepers")
class LocalZooKeeper:
    """A ZooKeeper server that runs on this machine."""

    address: str = field("Where it listens.")
    uri: str = field("For `bkctl -u URI cluster init`.")
    directory: str = field("The directory of the cluster.")
    pid: int = field("Its process.")


@shown(
    "clusters",
    Column(
        "bookies",
        "Its bookies.",
        lambda v: [attrs.asdict(bookie) for bookie in v.bookies],
        Kind.NESTED,
    ),
)
class LocalSummary:
    """A local cluster, for programs."""

    uri: str = field("The metadata service.")
    directory: str = field("The directory of the cluster.")
    bookies: tuple[LocalBookie, ...]


def show(session: Session, found: LocalSummary) -> None:
    """Print the bookies, or the whole cluster in the forms that can hold one."""
    if session.options.output in {None, "table", "wide", "id"}:
        session.emit_all(found.bookies, LocalBookie)
    else:
        session.emit(found)
    session.finish()
    session.host.stdout.flush()
