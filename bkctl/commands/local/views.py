"""What local clusters look like."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import attrs

from bkctl.output.emit import Field, Kind, View

if TYPE_CHECKING:
    from bkctl.session.session import Session


@attrs.frozen
class LocalBookie:
    """One bookie of a local cluster."""

    bookie_id: str
    state: str
    pid: int | None
    directory: str
    log: str


@attrs.frozen
class LocalZooKeeper:
    """A ZooKeeper server that runs on this machine."""

    address: str
    pid: int
    directory: str
    uri: str
    """For a cluster in it, once `bkctl cluster init` has made one."""


@attrs.frozen
class LocalSummary:
    """A local cluster, for programs."""

    uri: str
    directory: str
    bookies: tuple[LocalBookie, ...]


def show(session: Session, found: LocalSummary) -> None:
    """Print the bookies for people, or the whole cluster for programs."""
    if session.options.output in {None, "table", "wide"}:
        session.emit_all(found.bookies, LocalBookie)
    else:
        session.emit(found)
    session.finish()
    session.host.stdout.flush()


LOCAL_VIEWS: Final[Mapping[type, View]] = {
    LocalSummary: View(
        "clusters",
        (
            Field("uri", "The metadata service.", lambda v: v.uri),
            Field("directory", "Where everything lies.", lambda v: v.directory),
            Field(
                "bookies",
                "Its bookies.",
                lambda v: [attrs.asdict(bookie) for bookie in v.bookies],
                Kind.NESTED,
            ),
        ),
        "uri",
    ),
    LocalZooKeeper: View(
        "zookeepers",
        (
            Field("address", "Where it listens.", lambda v: v.address),
            Field("uri", "For `bkctl -u URI cluster init`.", lambda v: v.uri),
            Field("directory", "Where everything lies.", lambda v: v.directory),
            Field("pid", "Its process.", lambda v: v.pid, Kind.COUNT),
        ),
        "address",
    ),
    LocalBookie: View(
        "bookies",
        (
            Field("bookie_id", "The bookie.", lambda v: v.bookie_id, header="BOOKIE"),
            Field("state", "Its state.", lambda v: v.state, Kind.STATE),
            Field("pid", "Its process.", lambda v: v.pid, Kind.COUNT),
            Field("directory", "Its journal and ledgers.", lambda v: v.directory, rank=1),
            Field("log", "Its log.", lambda v: v.log, rank=2),
        ),
        "bookie_id",
    ),
}
