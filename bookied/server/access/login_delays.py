"""Delays of the answers to an address that has sent wrong passwords.

The delays slow down guessing, from any number of connections: the waits of one address add up. An
IPv6 network counts as one address.
"""

from __future__ import annotations

from typing import Final

import attrs
from twisted.internet.interfaces import IReactorTime

from bkclient.concurrency import doubled_s
from bookied.server.limits.address_groups import group_of

FREE_FAILURES: Final = 3
"""Wrong passwords in a row without a delay: a client with an old password tries again."""

FIRST_DELAY_S: Final = 0.25
DELAY_S_MAX: Final = 5.0
WAIT_S_MAX: Final = 20.0
"""A password that would have to wait longer is refused at once."""

FORGOTTEN_AFTER_S: Final = 300.0
ADDRESSES_MAX: Final = 10_000
"""Addresses that are remembered; with more, the one with the oldest failure is forgotten."""


@attrs.define
class _Failures:
    count: int = 0
    last_s: float = 0.0
    next_s: float = 0.0
    """Earliest time of the next answer."""


class LoginDelays:
    """The wrong passwords of each address, and the delays that they cause."""

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self._failures: dict[str, _Failures] = {}

    def failed(self, host: str) -> None:
        """Count a wrong password."""
        now_s, group = self._clock.seconds(), group_of(host)
        found = self._failures.pop(group, None)
        if found is None or now_s - found.last_s > FORGOTTEN_AFTER_S:
            found = _Failures()
        while len(self._failures) >= ADDRESSES_MAX:
            del self._failures[next(iter(self._failures))]
        self._failures[group] = found  # Moved to the end: the oldest failures are first.
        found.count += 1
        found.last_s = now_s
        found.next_s = max(found.next_s, now_s + _delay_s(found.count))

    def wait_s(self, host: str) -> float | None:
        """Return the seconds to wait before a password is checked.

        None: refuse the password at once.

        Each call adds to the wait of the next call, so that passwords sent together wait in a row.
        """
        found, now_s = self._failures.get(group_of(host)), self._clock.seconds()
        if found is None or now_s - found.last_s > FORGOTTEN_AFTER_S:
            return 0.0
        wait_s = max(0.0, found.next_s - now_s)
        if wait_s > WAIT_S_MAX:
            return None
        found.next_s = max(found.next_s, now_s) + _delay_s(found.count)
        return wait_s


def _delay_s(failures: int) -> float:
    if failures < FREE_FAILURES:
        return 0.0
    return doubled_s(FIRST_DELAY_S, failures - FREE_FAILURES, DELAY_S_MAX)
