"""The limits of open connections, in total and of one address."""

from __future__ import annotations

from itertools import islice
from typing import Final

import attrs
from twisted.internet.interfaces import IReactorTime

from bookied.server.limits.address_groups import group_of
from bookied.server.limits.limit_hits import Limit, LimitHits
from bookied.server.limits.timeouts import Timeouts, WatchedConnection
from wire.codes import FRAME_BYTES_MAX

SILENT_S: Final = 5.0
"""Seconds without a byte or read after which a client may be closed in favour of another
address.
"""

LOOKED_AT_MAX: Final = 64
"""Connections that are checked to find one that can be closed."""


@attrs.frozen(kw_only=True)
class ConnectionSettings:
    """The settings of every connection. The first three may change while the bookie runs."""

    count_max: int | None = None
    """Connections at which clients are turned away, because journals and logs need the remaining
    file descriptors; None for no limit.
    """
    of_address_max: int | None = None
    """The same limit for the clients of one address; see ``group_of``."""
    timeouts: Timeouts = attrs.field(factory=Timeouts)
    """Seconds that clients may keep the bookie waiting; no limit by default."""
    frame_bytes_max: int = FRAME_BYTES_MAX
    """``nettyMaxFrameSizeBytes``; a longer frame closes its connection."""
    tcp_keep_alive: bool = True
    """``serverSockKeepalive``."""


class ConnectionCounts:
    """The open connections by address group.

    At the limit, a connection of an address with fewer connections replaces one of the address with
    most, if that client has been silent or has read nothing for a while. So clients that only keep
    connections open do not lock out other addresses.
    """

    def __init__(self, hits: LimitHits[Limit], clock: IReactorTime) -> None:
        self._hits, self._clock = hits, clock
        self._by_group: dict[str, dict[WatchedConnection, None]] = {}
        self._count = 0

    def refuses(self, host: str, settings: ConnectionSettings) -> bool:
        """Return whether a new connection of this host exceeds a limit; log it if so."""
        group = group_of(host)
        own_count = len(self._by_group.get(group, ()))
        has_its_share = _is_full(own_count, settings.of_address_max)
        if _is_full(self._count, settings.count_max) and (
            has_its_share or not self._make_room(own_count)
        ):
            self._hits.hit(Limit.CONNECTIONS, host, f"{self._count} are open")
        elif has_its_share:
            self._hits.hit(Limit.ADDRESS, host, f"{own_count} of {group} are open")
        else:
            return False
        return True

    def _make_room(self, own_count: int) -> bool:
        group, crowd = max(self._by_group.items(), key=lambda one: len(one[1]), default=("", {}))
        if len(crowd) <= own_count + 1:
            return False
        for connection in list(islice(crowd, LOOKED_AT_MAX)):
            if connection.waiting.is_silent_since(self._clock.seconds() - SILENT_S):
                self.closed(connection, group)
                connection.time_is_up(Limit.CROWD)
                return True
            del crowd[connection]
            crowd[connection] = None  # The next call checks others first.
        return False

    def opened(self, connection: WatchedConnection, host: str) -> None:
        """Count a connection."""
        self._by_group.setdefault(group_of(host), {})[connection] = None
        self._count += 1

    def closed(self, connection: WatchedConnection, host: str) -> None:
        """Count out a connection; a second call does nothing."""
        group = group_of(host)
        mine = self._by_group.get(group, {})
        if connection not in mine:
            return
        del mine[connection]
        self._count -= 1
        if not mine:
            del self._by_group[group]


def _is_full(count: int, count_max: int | None) -> bool:
    return count_max is not None and count >= count_max
