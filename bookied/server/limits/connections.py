"""How many connections there may be, and how many of one address."""

from __future__ import annotations

from collections import Counter

import attrs

from bookied.server.limits.address_groups import group_of
from bookied.server.limits.hits import Limit, LimitHits
from bookied.server.limits.timeouts import Timeouts
from wire.codes import FRAME_BYTES_MAX


@attrs.frozen(kw_only=True)
class ConnectionSettings:
    """What holds for every connection. The first three may change while the bookie runs."""

    count_max: int | None = None
    """Further clients are turned away, or their descriptors would be those that journals and logs
    need; None for no limit."""
    of_address_max: int | None = None
    """The same for the clients of one address; see ``group_of``."""
    timeouts: Timeouts = attrs.field(factory=Timeouts)
    """How long clients may keep the bookie waiting; for ever where it is not given."""
    frame_bytes_max: int = FRAME_BYTES_MAX
    """``nettyMaxFrameSizeBytes``; a longer frame closes its connection."""
    tcp_keep_alive: bool = True
    """``serverSockKeepalive``."""


class ConnectionCounts:
    """How many connections are open, in all and by group of addresses."""

    def __init__(self, hits: LimitHits[Limit]) -> None:
        self._hits = hits
        self._by_group: Counter[str] = Counter()

    def refuses(self, host: str, settings: ConnectionSettings) -> bool:
        """Whether one more of this host is too many; says so if it is."""
        count, group = self._by_group.total(), group_of(host)
        if _is_full(count, settings.count_max):
            self._hits.hit(Limit.CONNECTIONS, host, f"{count} are open")
        elif _is_full(self._by_group[group], settings.of_address_max):
            self._hits.hit(Limit.ADDRESS, host, f"{self._by_group[group]} of {group} are open")
        else:
            return False
        return True

    def opened(self, host: str) -> None:
        """Count a connection."""
        self._by_group[group_of(host)] += 1

    def closed(self, host: str) -> None:
        """Count it no more."""
        group = group_of(host)
        self._by_group[group] -= 1
        if not self._by_group[group]:
            del self._by_group[group]


def _is_full(count: int, count_max: int | None) -> bool:
    return count_max is not None and count >= count_max
