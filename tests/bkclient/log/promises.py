"""What one log has promised to anybody, and what must hold: G1 to G8 of ledgers2logs.md section 7.

For any world with a log in it: it tells what is sent, acknowledged and read, and asks for the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

import attrs

from bkclient.log import Position
from bkclient.log.record import LogRecord
from wire.ids import LedgerId

Require = Callable[[str, object, str], None]


def require(name: str, holds: object, what: str) -> None:
    """Raise unless it holds."""
    assert holds, f"{name}: {what}"


@attrs.frozen
class Ack:
    """An append that a writer has heard to be in the log."""

    writer: int
    payload: bytes
    position: Position


@attrs.frozen
class Latest:
    """A reader from the latest entry: what had been when it was opened, and what it has seen."""

    acks: int
    sent: frozenset[bytes]
    growing: frozenset[LedgerId]
    """Of those ledgers that had acknowledged entries, which were not closed."""
    seen: list[tuple[Position, bytes]]

    def missed(self, acks: list[Ack]) -> list[Ack]:
        """Return what it ought to have seen, and did not.

        What was acknowledged later may have been in the log already, if its writer heard of it
        late: but not where it was not even appended, or went to a ledger of which entries were
        acknowledged as they came, and that was not closed.
        """
        came = {position for position, _payload in self.seen}
        return [
            ack
            for ack in acks[self.acks :]
            if (ack.payload not in self.sent or ack.position.ledger_id in self.growing)
            and ack.position not in came
        ]


class LogPromises:
    """All that was promised of one log.

    Args:
        record: returns the log's record as it is stored now.
        is_closed: returns whether a ledger is closed by its metadata; None where that is gone.
        require: takes the name of an invariant, whether it holds, and what is the matter.
    """

    def __init__(
        self,
        record: Callable[[], LogRecord],
        is_closed: Callable[[LedgerId], bool | None],
        require: Require = require,
    ) -> None:
        self._record, self._is_closed, self._require = record, is_closed, require
        self.acks: list[Ack] = []
        self.sent: set[bytes] = set()
        self.read: list[list[tuple[Position, bytes]]] = []
        self.whole: list[Latest] = []
        """Readers from the latest entry that came to the end of the sealed log."""
        self.trim_asked = 0
        self._terms: dict[int, tuple[Position, Position | None]] = {}
        """Of each writer the first and the last position that it has acknowledged."""
        self._listed: set[LedgerId] = set()

    def acked(self, writer: int, payload: bytes, position: Position) -> None:
        """Take an acknowledgement when it is given."""
        ack, record = Ack(writer, payload, position), self._record()
        self._check_order(ack)
        is_listed = position.index < record.trimmed or (
            position.index in record
            and record.ledger(position.index).ledger_id == position.ledger_id
        )
        self._require("G3", is_listed, f"{ack}: its ledger is not listed")
        self._check_fixed(record, position)
        self.acks.append(ack)

    def _check_order(self, ack: Ack) -> None:
        """G5, G6: each writer's entries are in order, and those of two writers do not mix.

        An answer may be late. So a writer may hear of an entry after another one has acknowledged
        its own; but only of one that was in the log for good when that one took over.
        """
        position = ack.position
        first, last = self._terms.get(ack.writer, (position, None))
        in_order = last is None or position > last
        self._require("G6", in_order, f"{position} is acknowledged after {last}")
        self._terms[ack.writer] = first, position
        for writer, (begin, end) in self._terms.items():
            if writer != ack.writer and end is not None:
                apart = position < begin or first > end
                self._require("G5", apart, f"{ack} among the entries of writer {writer}")
                if position < begin and position.ledger_id is not None:
                    is_fixed = self._is_closed(position.ledger_id) is not False
                    self._require("G5", is_fixed, f"{ack} after writer {writer} has taken over")

    def latest(self, seen: list[tuple[Position, bytes]]) -> Latest:
        """Take that a reader has been opened at the latest entry."""
        heard = {ack.position.ledger_id for ack in self.acks}
        growing = {one for one in heard if one is not None and self._is_closed(one) is False}
        return Latest(len(self.acks), frozenset(self.sent), frozenset(growing), seen)

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
            self._require("G6", is_fixed, f"{position} is told of, and {ledger_id} is open")

    def check_record(self) -> None:
        """Look at the record, and at what it lists."""
        record = self._record()
        what = f"{record.trimmed} ledgers are trimmed, {self.trim_asked} were to be"
        self._require("G7", record.trimmed <= self.trim_asked, what)
        listed = {ledger.ledger_id for ledger in record.ledgers}
        for ledger_id in self._listed - listed:
            is_open = self._is_closed(ledger_id) is False
            self._require("G7", not is_open, f"ledger {ledger_id} is open, and is trimmed")
        self._listed = listed
        for ledger in record.ledgers:
            is_there = self._is_closed(ledger.ledger_id) is not None
            self._require("G3", is_there, f"ledger {ledger.ledger_id} is listed, and is gone")
        for ledger in record.ledgers[:-2]:
            self._require("G4", self._is_closed(ledger.ledger_id), f"{ledger} is open")

    def check_final(self, final: list[tuple[Position, bytes]]) -> None:
        """Compare the log, read from end to end, with all that was ever told of it."""
        payloads = [payload for _position, payload in final]
        self._require("G1", len(set(payloads)) == len(payloads), "an entry is there twice")
        self._require("G1", set(payloads) <= self.sent, "an entry was never appended")
        held, trimmed = dict(final), self._record().trimmed
        for ack in self.acks:
            is_there = ack.position.index < trimmed or held.get(ack.position) == ack.payload
            self._require("G1", is_there, f"{ack} is lost")
        for seen in self.read:
            kept = [found for found in seen if found[0].index >= trimmed]
            begin = final.index(kept[0]) if kept and kept[0] in final else 0
            is_part = final[begin : begin + len(kept)] == kept
            self._require("G2", is_part, f"a reader has seen {kept[:3]}...")
        for latest in self.whole:
            missed = latest.missed(self.acks)
            self._require("G2", not missed, f"a reader from the latest entry misses {missed}")

    def check_swept(self, tagged: Collection[LedgerId]) -> None:
        """After a sweep nothing with the log's name is left that the record does not list."""
        listed = {ledger.ledger_id for ledger in self._record().ledgers}
        self._require("G8", set(tagged) == listed, f"{sorted(tagged)} are there, {sorted(listed)}")
