"""The columns of `bookie list`, filled from metadata alone; ``ask_bookies`` fills the others."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from bkclient.metadata.stored_values import BookieState, BookieStatus
from bkctl.output.views import BOOKIE, WIDE, Column, Kind, field, shown

if TYPE_CHECKING:
    from bkctl.bookies.http.admin_client import HttpAddress
    from bkctl.session.session import Session
    from wire.ids import BookieId

LOGIN_NEEDED: Final = "put the client's login or TLS settings into a file, and name it with -c"
"""The hint if bookies refuse the client."""


@shown(
    "bookies",
    Column(
        "state",
        "writable, read-only, down; or unreachable: registered, and does not answer.",
        "state_seen",
        Kind.STATE,
        after="bookie_id",
    ),
    Column(
        "used",
        "Per cent of the bookie's disks in use.",
        "used_percent",
        rank=2,
        cell=lambda v: f"{v.used_percent:.0f} %",
        after="total",
    ),
    healthy=lambda v: v.state_seen == "writable",
)
class BookieSummary:
    """One bookie: its metadata, and its own report if it was asked."""

    bookie_id: BookieId = field(BOOKIE)
    state: str
    address: str | None = field("Address that the bookie listens on.", rank=2, default=None)
    free: int | None = field(
        "Free space on the bookie's disks.", kind=Kind.BYTES, rank=1, default=None
    )
    total: int | None = field("Size of the bookie's disks.", kind=Kind.BYTES, rank=1, default=None)
    properties: Mapping[str, str] = field(
        "Further properties that the bookie published.",
        rank=WIDE,
        cell=lambda v: " ".join(f"{k}={t}" for k, t in v.properties.items()) or "-",
        factory=dict,
    )
    rack: str | None = field("Network location of the bookie.", rank=WIDE, default=None)
    """Its network location, if a topology script is configured."""
    unreachable: str = ""
    """The reason why it did not report its disks; empty if it did, or was not asked."""
    refuses: bool = False
    """True if it answers but refuses this client."""
    http: HttpAddress | None = None
    """The published address of its HTTP server, if any."""
    version: str | None = field(
        "Version of the bookie, if the bookie reports it.", rank=WIDE, default=None
    )
    uptime_s: float | None = field(
        "Time since the bookie's start, if the bookie reports it.",
        rank=WIDE,
        header="UPTIME",
        default=None,
    )

    @property
    def host(self) -> str:
        return (self.address or "").rpartition(":")[0]

    @property
    def state_seen(self) -> str:
        """The registered state; ``unreachable`` if the bookie was asked and did not answer."""
        return "unreachable" if self.unreachable else self.state

    @property
    def is_registered(self) -> bool:
        return self.state != BookieState.DOWN.value

    @property
    def used(self) -> float | None:
        """The share of its disks in use."""
        if self.free is None or not self.total:
            return None
        return 1 - self.free / self.total

    @property
    def used_percent(self) -> float | None:
        """The value of ``used`` in per cent, with one digit."""
        return None if self.used is None else round(100 * self.used, 1)


def listed_bookies(session: Session, wanted: str | None) -> list[BookieSummary]:
    """Return the bookies in a state (``None``: all), by id."""
    found = session.cluster.view.bookies()
    return [summary_of(one) for one in found if wanted in {None, one.state.value}]


def summary_of(one: BookieStatus) -> BookieSummary:
    """Return the summary of a bookie from its metadata alone."""
    if one.info is None:
        return BookieSummary(one.bookie_id, one.state.value)
    endpoint = one.info.endpoint()
    return BookieSummary(
        one.bookie_id,
        one.state.value,
        address=None if endpoint is None else f"{endpoint.host}:{endpoint.port}",
        properties=one.info.properties,
    )


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine: a loopback address, or ``localhost``."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:  # A name; it is not resolved.
        return False
