"""The rule about which bookies are lost and when an audit (``audits``) starts: no I/O, no clock.

``auditor`` reads and publishes the delay; ``bkclient.metadata.tree.underreplication.switches``
stores it.

A single lost bookie may be restarting, and has ``lostBookieRecoveryDelay`` to return. A second lost
bookie means that this is not a restart. Agrees with BookKeeper 4.18.0, Auditor.
"""

from __future__ import annotations

import enum
from collections.abc import Collection

import attrs

from bkclient.metadata.versions_and_watches import Versioned
from wire.ids import BookieId


class Audit(enum.Enum):
    """A decision about an audit of the bookies."""

    NOW = enum.auto()
    CANCELLED = enum.auto()
    """Cancel the scheduled audit."""


@attrs.frozen
class AuditLater:
    """Audit after a delay, unless a later decision replaces this one.

    A running timer starts again.
    """

    delay_s: int


Command = Audit | AuditLater


class LostBookies:
    """The known bookies, and the lost ones that wait for their audit.

    Args:
        known: the bookies with a cookie, registered or not: a bookie that was lost before the
            auditor started is lost, too.
        delay: the stored delay with its version.
    """

    def __init__(self, known: Collection[BookieId], delay: Versioned[int]) -> None:
        self._known = set(known)
        self._waiting: set[BookieId] = set()
        self._delay = delay

    @property
    def is_waiting(self) -> bool:
        """True if an audit follows after the delay. Periodic checks are skipped meanwhile."""
        return bool(self._waiting)

    def seen(self, available: Collection[BookieId]) -> list[Command]:
        """Note the bookies that are registered now, writable or read-only; return the decisions."""
        commands: list[Command] = []
        self._known |= set(available)
        was_waiting = bool(self._waiting)
        if was_waiting and self._waiting <= self._known:
            self._waiting.clear()
            was_waiting = False
            commands.append(Audit.CANCELLED)
        self._waiting |= self._known - set(available)
        self._known -= self._waiting
        if not self._waiting:
            return commands
        if self._delay.value == 0 or len(self._waiting) > 1:
            return [*commands, *self._audit(cancel=was_waiting)]
        return commands if was_waiting else [*commands, AuditLater(self._delay.value)]

    def delay_stored(self, delay: Versioned[int]) -> list[Command]:
        """Note the stored delay; return the decisions.

        The same value with a new version means "audit now"; the same version means nothing.
        """
        before, self._delay = self._delay, delay
        if delay.version == before.version:
            return []
        if delay.value in {0, before.value}:
            return self._audit(cancel=bool(self._waiting))
        return [AuditLater(delay.value)] if self._waiting else []

    def audited(self, lost: Collection[BookieId] = ()) -> None:
        """Note that an audit began, or that it has marked the ledgers of the bookies ``lost``."""
        self._waiting.clear()
        self._known -= set(lost)

    def _audit(self, *, cancel: bool) -> list[Command]:
        self._waiting.clear()
        return [Audit.CANCELLED, Audit.NOW] if cancel else [Audit.NOW]
