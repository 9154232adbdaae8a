"""The rules of recovery, which finds the last entry of a ledger without a writer. No I/O.

The order of the steps makes recovery safe. First IN_RECOVERY is stored, which stops the writer from
moving to other bookies. Then every bookie of the last fragment is fenced, until no ack quorum can
still accept an add. Then entries are read forward, with reads that fence, until an entry is found
that certainly never reached its quorum. The entries found are written back, so that every later
reader finds a quorum. Only then is the last entry stored.

Agrees with BookKeeper 4.18.0, ReadOnlyLedgerHandle and LedgerRecoveryOp. All replicas are asked in
parallel. Stricter: the LAC in the headers of written back entries stays LAC0, and the length is
measured if nothing was written back. Faster: a long recovery reads more entries in parallel.
"""

from __future__ import annotations

import sys
from collections import deque
from typing import Final, Union

import attrs

from bkclient.errors import (
    ClientError,
    ClientUnauthorizedError,
    LedgerRecoveryError,
    ReadFailedError,
    RequestTimeoutError,
)
from bkclient.quorum.distribution import write_set
from bkclient.quorum.read_rules import NEGATIVE, KnownLac, LacQuorum, worse_error
from wire.digest import Entry
from wire.errors import LocalProtocolError
from wire.ids import BookieId, EntryId
from wire.ledger_metadata import LedgerMetadata

READS_MAX: Final = 64
"""Entries that are read in parallel, unless the settings say more."""
READ_BYTES_MAX: Final = 1 << 20
"""Bytes of entries that are read in parallel, if the next entries are as long as the last one."""
_ENTRIES_A_READ: Final = 16
"""Entries after which one more is read in parallel."""
UNWRITTEN_BYTES_MAX: Final = 8 << 20
"""Bytes to be written back above which no entry is read: one bookie may return entries faster than
others store them.
"""
ENTRY_BYTES: Final = 512
"""Bytes of memory of an entry to write back, besides its payload."""

# Commands --------------------------------------------------------------------------------------


@attrs.frozen
class FenceBookies:
    """Send a fencing read of the last entry to every bookie of the last fragment."""

    ensemble: tuple[BookieId, ...]


@attrs.frozen
class ReadReplicas:
    """Send a fencing read of an entry to its complete write set in the frozen metadata."""

    entry_id: EntryId
    replicas: tuple[tuple[int, BookieId], ...]


@attrs.frozen
class WriteBack:
    """Add an entry again, with RECOVERY and LAC0; entries are in order."""

    entry: Entry
    lac: EntryId


@attrs.frozen
class MeasureLength:
    """Read the entry LAC0, for the length in its header."""

    entry_id: EntryId


@attrs.frozen
class CloseAt:
    """Store that the ledger is closed and ends with this entry."""

    last_entry: EntryId
    length: int


@attrs.frozen
class AbortRecovery:
    """Abort the recovery, which can be started again from the begin."""

    error: ClientError


RecoveryCommand = Union[
    FenceBookies, ReadReplicas, WriteBack, MeasureLength, CloseAt, AbortRecovery
]


# The rules -------------------------------------------------------------------------------------


class EntryVerdict:
    """The verdict whether an entry of a fenced ledger can be recovered.

    One verified copy is enough to recover it. Qw - Qa + 1 negative answers prove that it never had
    its ack quorum. With anything else the verdict is open, and the ledger must not be closed.
    """

    def __init__(self, entry_id: EntryId, write_quorum: int, ack_quorum: int) -> None:
        self.entry_id = entry_id
        self._write_quorum = write_quorum
        self._negatives_needed = write_quorum - ack_quorum + 1
        self._answers: set[int] = set()
        self._negatives = 0
        self._error: ClientError | None = None
        self.entry: Entry | None = None
        self.is_end = False
        self.failure: ClientError | None = None

    @property
    def decided(self) -> bool:
        """True if there is a verdict: ``entry``, ``is_end`` or ``failure``."""
        return self.entry is not None or self.is_end or self.failure is not None

    def found(self, index: int, entry: Entry) -> None:
        """Handle a verified copy."""
        if self.decided:
            return
        self._answers.add(index)
        self.entry = entry

    def failed(self, index: int, error: ClientError) -> None:
        """Handle a negative answer, or an error that proves nothing about the entry."""
        if self.decided or index in self._answers:
            return
        self._answers.add(index)
        self._error = worse_error(self._error, error)
        self._negatives += isinstance(error, NEGATIVE)
        if self._negatives >= self._negatives_needed:
            self.is_end = True
        elif len(self._answers) == self._write_quorum:
            self.failure = self._error


class Recovery:
    """The steps from a ledger in recovery to its close.

    Args:
        metadata: as stored with IN_RECOVERY. All reads use its ensembles, never those made while
            writing back, which may lack entries.
        window: the least number of entries read in parallel.
        entries_max: the largest number of entries after the LAC; with more the recovery fails.
        bytes_max: the largest size of these entries.
    """

    def __init__(
        self,
        metadata: LedgerMetadata,
        *,
        window: int = 1,
        entries_max: int = sys.maxsize,
        bytes_max: int = sys.maxsize,
    ) -> None:
        self._metadata, self._entries_max, self._bytes_max = metadata, entries_max, bytes_max
        self._window = self._window_min = window
        self._fence = LacQuorum(metadata.ensemble_size, metadata.write_quorum, metadata.ack_quorum)
        self._lac0: EntryId | None = None
        self._length = 0
        self._verdicts: dict[EntryId, EntryVerdict] = {}
        self._next_read = EntryId(0)
        self._next_write = EntryId(0)
        self._written = EntryId(-1)
        self._unwritten: deque[tuple[EntryId, int]] = deque()
        self._unwritten_bytes = self._found_bytes = 0
        self._end_found = False
        self.ended = False

    @property
    def lac0(self) -> EntryId:
        """The LAC when the bookies were fenced."""
        assert self._lac0 is not None, "not fenced yet"
        return self._lac0

    @property
    def fenced(self) -> bool:
        """True if the fencing step is over."""
        return self._lac0 is not None

    def start(self) -> list[RecoveryCommand]:
        """Begin with fencing."""
        return [FenceBookies(self._metadata.last_fragment.ensemble)]

    # Fencing

    def fence_answered(self, index: int, known: KnownLac | None) -> list[RecoveryCommand]:
        """Handle a fenced bookie's last entry: the LAC and length in its header.

        ``None``: no entry.
        """
        self._fence.answered(index, known)
        return self._see_fence()

    def fence_failed(self, index: int, error: ClientError) -> list[RecoveryCommand]:
        """Handle an error; "no such entry" counts as fenced."""
        self._fence.failed(index, error)
        return self._see_fence()

    def _see_fence(self) -> list[RecoveryCommand]:
        outcome = self._fence.result
        if self.ended or self.fenced or outcome is None:
            return []
        if isinstance(outcome, ClientError):
            return self._abort(_as_fence_error(outcome))
        first = self._metadata.last_fragment.first_entry_id
        self._lac0 = EntryId(max(outcome.lac, first - 1))
        self._length = outcome.length
        self._next_read = self._next_write = EntryId(self._lac0 + 1)
        self._written = self._lac0
        return self._read_on()

    # Reading forward

    def _read_on(self) -> list[RecoveryCommand]:
        commands: list[RecoveryCommand] = []
        while (
            len(self._verdicts) < self._window
            and not self._end_found
            and self._unwritten_bytes < UNWRITTEN_BYTES_MAX
        ):
            entry_id = self._next_read
            self._next_read = EntryId(entry_id + 1)
            meta = self._metadata
            self._verdicts[entry_id] = EntryVerdict(entry_id, meta.write_quorum, meta.ack_quorum)
            ensemble = meta.last_fragment.ensemble
            indexes = write_set(entry_id, meta.ensemble_size, meta.write_quorum)
            commands.append(ReadReplicas(entry_id, tuple((i, ensemble[i]) for i in indexes)))
        return commands

    def read_answered(self, index: int, entry: Entry) -> list[RecoveryCommand]:
        """Handle a verified copy of an entry."""
        verdict = self._verdicts.get(entry.entry_id)
        if verdict is None or self.ended:
            return []
        verdict.found(index, entry)
        return self._go_on()

    def read_failed(
        self, entry_id: EntryId, index: int, error: ClientError
    ) -> list[RecoveryCommand]:
        """Handle a negative answer or an error."""
        verdict = self._verdicts.get(entry_id)
        if verdict is None or self.ended:
            return []
        verdict.failed(index, error)
        return self._go_on()

    def _go_on(self) -> list[RecoveryCommand]:
        """Act on verdicts strictly in the order of entries.

        After the last entry they do not count.
        """
        commands: list[RecoveryCommand] = []
        while (verdict := self._verdicts.get(self._next_write)) is not None and verdict.decided:
            if verdict.failure is not None:
                text = f"entry {verdict.entry_id} may exist, but no bookie gives it"
                error = LedgerRecoveryError(f"{text}: {verdict.failure}")
                error.__cause__ = verdict.failure
                return [*commands, *self._abort(error)]
            if verdict.entry is None:
                self._end_found = True
                self._verdicts.clear()
                return [*commands, *self._close_when_written()]
            size_bytes = len(verdict.entry.payload)
            self._found_bytes += size_bytes
            if self._next_write - self.lac0 > self._entries_max:
                text, setting = f"{self._entries_max} entries", "recoveryEntriesMax"
                return [*commands, *self._abort(self._too_many(text, setting))]
            if self._found_bytes > self._bytes_max:
                text, setting = f"{self._bytes_max} bytes", "recoveryBytesMax"
                return [*commands, *self._abort(self._too_many(text, setting))]
            self._unwritten.append((self._next_write, size_bytes + ENTRY_BYTES))
            self._unwritten_bytes += size_bytes + ENTRY_BYTES
            del self._verdicts[self._next_write]
            self._next_write = EntryId(self._next_write + 1)
            self._length = verdict.entry.length
            self._widen(verdict.entry)
            commands.append(WriteBack(verdict.entry, self.lac0))
        return [*commands, *self._read_on()]

    def _too_many(self, text: str, setting: str) -> LedgerRecoveryError:
        return LedgerRecoveryError(
            f"more than {text} follow entry {self.lac0}, the last one known "
            f"to be confirmed: a bookie may invent them; {setting} allows more"
        )

    def _widen(self, last: Entry) -> None:
        found = self._next_write - self.lac0 - 1
        fits = READ_BYTES_MAX // max(1, len(last.payload))
        self._window = max(self._window_min, min(found // _ENTRIES_A_READ, fits, READS_MAX))

    # Writing back

    def wrote_back(self, last: EntryId) -> list[RecoveryCommand]:
        """Note that all entries up to ``last`` have their ack quorum again."""
        if last >= self._next_write:
            raise LocalProtocolError(f"entry {last} was written back before it was read")
        self._written = max(self._written, last)
        while self._unwritten and self._unwritten[0][0] <= last:
            self._unwritten_bytes -= self._unwritten.popleft()[1]
        if self.ended:
            return []
        return [*self._read_on(), *self._close_when_written()]

    def write_back_failed(self, error: ClientError) -> list[RecoveryCommand]:
        """Abort, because an entry cannot be written back."""
        failure = LedgerRecoveryError(f"an entry could not be written back: {error}")
        failure.__cause__ = error
        return [] if self.ended else self._abort(failure)

    def _close_when_written(self) -> list[RecoveryCommand]:
        if self.ended or not self._end_found or self._written != self._next_write - 1:
            return []
        if self._written == self.lac0 and self.lac0 >= 0:
            return [MeasureLength(self.lac0)]
        return self._close(self._length if self._written >= 0 else 0)

    def measured(self, length: int | None) -> list[RecoveryCommand]:
        """Handle the length found at LAC0; ``None`` if it could not be read."""
        return [] if self.ended else self._close(self._length if length is None else length)

    def _close(self, length: int) -> list[RecoveryCommand]:
        self.ended = True
        return [CloseAt(self._written, length)]

    def _abort(self, error: ClientError) -> list[RecoveryCommand]:
        self.ended = True
        return [AbortRecovery(error)]


def _as_fence_error(error: ClientError) -> ClientError:
    if isinstance(error, (RequestTimeoutError, ClientUnauthorizedError)):
        return error
    failure = ReadFailedError(f"too few bookies of the last fragment could be fenced: {error}")
    failure.__cause__ = error
    return failure
