"""Who waits until an entry is confirmed."""

from __future__ import annotations

from collections import deque

from twisted.internet.defer import Deferred

from bkclient.errors import ClientError
from wire.ids import EntryId


class Confirmations:
    """Deferreds in the order of their entries. An entry has none if no caller asks for one."""

    def __init__(self) -> None:
        """Begin without a Deferred."""
        self._waiting: deque[tuple[int, Deferred[EntryId]]] = deque()

    def wait_for(self, entry_id: EntryId) -> Deferred[EntryId]:
        """Return a Deferred that fires when the entry is confirmed, or with why it is not.

        Cancelling it lets go of the answer; the add itself cannot be taken back.
        """
        deferred: Deferred[EntryId] = Deferred()
        waiting, at = self._waiting, len(self._waiting)
        while at and waiting[at - 1][0] > entry_id:
            at -= 1
        if at == len(waiting):
            waiting.append((entry_id, deferred))
        else:
            waiting.insert(at, (entry_id, deferred))
        return deferred

    def confirm(self, last: EntryId) -> None:
        """Tell who waits for an entry up to ``last``."""
        waiting = self._waiting
        while waiting and waiting[0][0] <= last:
            entry_id, deferred = waiting.popleft()
            deferred.callback(EntryId(entry_id))

    def fail(self, error: ClientError) -> None:
        """Tell all who wait that nothing more is confirmed."""
        waiting, self._waiting = self._waiting, deque()
        for _, deferred in waiting:
            deferred.errback(error)
