"""When a connection counts as gone although nobody has said so: a rule about times, no I/O.

A host that lost its power, a dropped NAT entry, a bookie that hangs: requests time out, and the
system would try on for a quarter of an hour. Java's client has ``clientTcpUserTimeoutMillis`` only,
by which the system notices a peer that confirms no bytes; a bookie that hangs confirms them.
"""

from __future__ import annotations

import attrs


@attrs.define(eq=False, slots=True)
class Silence:
    """Whether a peer is silent altogether, or only slow.

    A time-out in which no byte came casts doubt. Where none comes for about as long again, it is
    over; any byte ends the doubt. One time-out alone says nothing: after a pause of our own process
    all timers come before what lies in the socket.
    """

    heard_s: float = float("-inf")
    """When something last came; whoever reads the connection sets it."""
    _since_s: float = 0.0
    _doubted_s: float = float("-inf")
    _over_s: float = float("inf")

    @property
    def is_doubted(self) -> bool:
        """Whether something has timed out, and nothing came in that time or since."""
        return self._doubted_s > self.heard_s

    def is_over(self, now_s: float) -> bool:
        """Return whether it has lasted too long."""
        return self.is_doubted and now_s >= self._over_s

    def lasts_s(self, now_s: float) -> float:
        """Return how long nothing has come, although something was asked."""
        return now_s - self._since_s

    def timed_out(self, now_s: float, waited_s: float, patience_s: float) -> None:
        """Note that what was asked ``waited_s`` ago has no answer.

        ``patience_s`` is how long it may go on.
        """
        asked_s = now_s - waited_s
        if self.heard_s < asked_s and not self.is_doubted:
            self._since_s, self._doubted_s, self._over_s = asked_s, now_s, now_s + patience_s
