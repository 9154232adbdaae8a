"""Which bookies are lost, and when an audit (``audits``) marks their ledgers: no I/O, no clock.

``auditor`` reads and publishes the delay; ``bkclient.metadata.tree.underreplication.switches``
stores it.

One lost bookie may be on its way back: it has ``lostBookieRecoveryDelay`` to do so. When a second
one goes, that is no restart any more. Agrees with BookKeeper 4.18.0, Auditor.
"""

from __future__ import annotations

import enum
from collections.abc import Collection

import attrs

from bkclient.metadata.api import Versioned
from wire.ids import BookieId


class Audit(enum.Enum):
    """What becomes of an audit of the bookies."""

    NOW = enum.auto()
    CANCELLED = enum.auto()
    """Forget the audit that was to come."""


@attrs.frozen
class AuditLater:
    """Audit after so long, unless told otherwise before; a timer that runs is set anew."""

    delay_s: int


Command = Audit | AuditLater


class LostBookies:
    """Which bookies should be there, and which of those that are not wait for their audit.

    Args:
        known: the bookies that have a cookie, whether they are there or not: one that was lost
            before this began is lost nevertheless.
        delay: as stored, with its version.
    """

    def __init__(self, known: Collection[BookieId], delay: Versioned[int]) -> None:
        self._known = set(known)
        self._waiting: set[BookieId] = set()
        self._delay = delay

    @property
    def is_waiting(self) -> bool:
        """Whether an audit is to come after the delay. Periodic checks keep out of its way."""
        return bool(self._waiting)

    def seen(self, available: Collection[BookieId]) -> list[Command]:
        """Take who is registered by now, writable or read-only."""
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
        """Take the delay as it is stored now.

        The same value written again means "audit now"; the same version means nothing.
        """
        before, self._delay = self._delay, delay
        if delay.version == before.version:
            return []
        if delay.value in {0, before.value}:
            return self._audit(cancel=bool(self._waiting))
        return [AuditLater(delay.value)] if self._waiting else []

    def audited(self, lost: Collection[BookieId] = ()) -> None:
        """An audit begins, or has ended and marked the ledgers of these bookies."""
        self._waiting.clear()
        self._known -= set(lost)

    def _audit(self, *, cancel: bool) -> list[Command]:
        self._waiting.clear()
        return [Audit.CANCELLED, Audit.NOW] if cancel else [Audit.NOW]
