"""What one log has promised to anybody, and what must hold: G1 to G8 of ledgers2logs.md section 7.

For any world with a log in it: it tells what is sent, acknowledged and read, and asks for the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

import attrs

from bkclient.log import Position
from bkclient.log.record import LogRecord
from wire.ids import LedgerId

Insist = Callable[[str, object, str], None]


def insist(name: str, holds: object, what: str) -> None:
    """Raise unless it holds."""
    assert holds, f"{name}: {what}"


@attrs.frozen
class Ack:
    """An append that a writer has heard to be in the log."""

    writer: int
    payload: bytes
    position: Position


class LogPromises:
    """All that was promised of one log.

    Args:
        record: returns the log's record as it is stored now.
        is_closed: returns whether a ledger is closed by its metadata; None where that is gone.
        insist: takes the name of an invariant, whether it holds, and what is the matter.
    """

    def __init__(
        self,
        record: Callable[[], LogRecord],
        is_closed: Callable[[LedgerId], bool | None],
        insist: Insist = insist,
    ) -> None:
        self._record, self._is_closed, self._insist = record, is_closed, insist
        self.acks: list[Ack] = []
        self.sent: set[bytes] = set()
        self.read: list[list[tuple[Position, bytes]]] = []
        self.trim_asked = 0
        self._deposed: set[int] = set()

    def acked(self, writer: int, payload: bytes, position: Position) -> None:
        """Take an acknowledgement when it is given."""
        ack, record = Ack(writer, payload, position), self._record()
        before = self.acks[-1] if self.acks else None
        if before is not None:
            ordered = position > before.position
            self._insist("G6", ordered, f"{position} is acknowledged after {before.position}")
            if before.writer != writer:
                self._deposed.add(before.writer)
        self._insist("G5", writer not in self._deposed, f"{ack} after another writer's")
        is_listed = position.index < record.trimmed or (
            position.index in record
            and record.ledger(position.index).ledger_id == position.ledger_id
        )
        self._insist("G3", is_listed, f"{ack}: its ledger is not listed")
        self._check_fixed(record, position)
        self.acks.append(ack)

    def delivered(
        self, seen: list[tuple[Position, bytes]], position: Position, payload: bytes
    ) -> None:
        """Take what a reader gets; ``seen`` is what it had before, and is one of ``read``."""
        seen.append((position, payload))
        self._check_fixed(self._record(), position)

    def _check_fixed(self, record: LogRecord, position: Position) -> None:
        """G6: nothing of a ledger is told of before the end of the one before is fixed."""
        if position.index - 1 in record:
            ledger_id = record.ledger(position.index - 1).ledger_id
            is_fixed = self._is_closed(ledger_id) is not False
            self._insist("G6", is_fixed, f"{position} is told of, and {ledger_id} is open")

    def check_record(self) -> None:
        """Look at the record, and at what it lists."""
        record = self._record()
        what = f"{record.trimmed} ledgers are trimmed, {self.trim_asked} were to be"
        self._insist("G7", record.trimmed <= self.trim_asked, what)
        for ledger in record.ledgers:
            is_there = self._is_closed(ledger.ledger_id) is not None
            self._insist("G3", is_there, f"ledger {ledger.ledger_id} is listed, and is gone")
        for ledger in record.ledgers[:-2]:
            self._insist("G4", self._is_closed(ledger.ledger_id), f"{ledger} is open")

    def check_final(self, final: list[tuple[Position, bytes]]) -> None:
        """Compare the log, read from end to end, with all that was ever told of it."""
        payloads = [payload for _position, payload in final]
        self._insist("G1", len(set(payloads)) == len(payloads), "an entry is there twice")
        self._insist("G1", set(payloads) <= self.sent, "an entry was never appended")
        held, trimmed = dict(final), self._record().trimmed
        for ack in self.acks:
            is_there = ack.position.index < trimmed or held.get(ack.position) == ack.payload
            self._insist("G1", is_there, f"{ack} is lost")
        for seen in self.read:
            kept = [found for found in seen if found[0].index >= trimmed]
            begin = final.index(kept[0]) if kept and kept[0] in final else 0
            is_part = final[begin : begin + len(kept)] == kept
            self._insist("G2", is_part, f"a reader has seen {kept[:3]}...")

    def check_swept(self, tagged: Collection[LedgerId]) -> None:
        """After a sweep nothing with the log's name is left that the record does not list."""
        listed = {ledger.ledger_id for ledger in self._record().ledgers}
        self._insist("G8", set(tagged) == listed, f"{sorted(tagged)} are there, {sorted(listed)}")
