"""Ledgers that were fenced and then deleted: no client may write to them again (client.md I23).

Some of these ledgers live on at other bookies and were only over-replicated here. Recovery adds may
copy them to this bookie again; the first of these adds fences the ledger. Java's bookie refuses
these adds too (4.18.0, HandleFactoryImpl): for a week it cannot be used to repair that ledger.

A file beside ``current/`` stores the ledgers, because a writer may return after a restart as well.
The file (integers big-endian):

    offset  size  field
    0          4  "BKFD"
    4          4  version: 1
    8       16 n  n times: ledger id i64, time of deletion i64 (ms since the epoch); oldest first
                  (the complement of the id, below 0, if the ledger lives on elsewhere)
    8+16 n     4  CRC32 of all before

A monotonic clock counts the week. While a bookie is down there is only the wall clock, so a start
remembers each ledger for at least ``KEPT_AT_START_S``.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

import attrs
from twisted.internet.defer import Deferred, DeferredLock
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from bkclient.concurrency import wall_clock
from bookied.storage.files.files import Files, read_if_there
from wire.ids import LedgerId

log = Logger()

REMEMBERED_S: Final = 7 * 24 * 3600.0
"""Seconds that Java's HandleFactoryImpl remembers them (4.18.0), in memory only."""

KEPT_AT_START_S: Final = 24 * 3600.0
"""Seconds that a start remembers even the oldest: the wall clock may have been set meanwhile."""

LEDGERS_MAX: Final = 250_000

FILE_NAME: Final = "bookied.deleted"
_HEAD: Final = struct.Struct(">4si")
_MAGIC: Final = b"BKFD"
_VERSION: Final = 1
_ROW: Final = struct.Struct(">qq")
_CRC: Final = struct.Struct(">I")


class FencedDeletions:
    """The latest ``LEDGERS_MAX`` fenced ledgers that were deleted within a week."""

    def __init__(self, clock: IReactorTime, monotonic_s: Callable[[], float] | None = None) -> None:
        """Begin empty. ``monotonic_s`` counts seconds, unaffected by a change of the wall clock."""
        self._wall_s, self._now_s = wall_clock(clock), monotonic_s or clock.seconds
        self._deleted_s: dict[LedgerId, float] = {}  # Oldest first.
        self._elsewhere: set[LedgerId] = set()  # The ledgers that live on elsewhere.
        self.has_changes = False
        """Whether the file lacks some of the ledgers; the writer of the file resets this."""

    def remember(self, ledger_id: LedgerId, *, lives_on: bool = False) -> None:
        """Record that a fenced ledger was deleted now; ``lives_on`` if other bookies store it."""
        self._deleted_s.pop(ledger_id, None)
        self._deleted_s[ledger_id] = self._now_s()
        self._elsewhere.discard(ledger_id)
        if lives_on:
            self._elsewhere.add(ledger_id)
        self.has_changes = True
        self._forget_old()

    def __contains__(self, ledger_id: object) -> bool:
        if not self._deleted_s:
            return False
        self._forget_old()
        return ledger_id in self._deleted_s

    def lives_on(self, ledger_id: LedgerId) -> bool:
        """Return whether other bookies store a remembered ledger, so that it may return here."""
        return ledger_id in self._elsewhere

    def _forget_old(self) -> None:
        until_s = self._now_s() - REMEMBERED_S
        while self._deleted_s:
            oldest = next(iter(self._deleted_s))
            if self._deleted_s[oldest] > until_s and len(self._deleted_s) <= LEDGERS_MAX:
                return
            del self._deleted_s[oldest]
            self._elsewhere.discard(oldest)

    def encode(self) -> bytes:
        """Return the contents of the file."""
        self._forget_old()
        began_s = self._wall_s() - self._now_s()
        rows = (
            _ROW.pack(~one if one in self._elsewhere else one, int((began_s + at_s) * 1000))
            for one, at_s in self._deleted_s.items()
        )
        data = _HEAD.pack(_MAGIC, _VERSION) + b"".join(rows)
        return data + _CRC.pack(zlib.crc32(data))

    def restore(self, data: bytes) -> None:
        """Add the ledgers of a file's contents.

        If these are damaged, log a warning and add none.
        """
        rows: dict[LedgerId, float] = {}
        wall_s, now_s = self._wall_s(), self._now_s()
        for one, at_ms in _rows(data):
            ledger_id = LedgerId(one if one >= 0 else ~one)
            age_s = min(wall_s - at_ms / 1000, REMEMBERED_S - KEPT_AT_START_S)
            rows[ledger_id] = now_s - max(0.0, age_s)
            if one < 0 and ledger_id not in self._deleted_s:
                self._elsewhere.add(ledger_id)
        self._deleted_s = dict(sorted((rows | self._deleted_s).items(), key=itemgetter(1)))
        self._forget_old()


def _rows(data: bytes) -> Iterator[tuple[int, int]]:
    body, crc = data[: -_CRC.size], data[-_CRC.size :]
    has_rows = len(body) >= _HEAD.size and (len(body) - _HEAD.size) % _ROW.size == 0
    is_complete = has_rows and crc == _CRC.pack(zlib.crc32(body))
    if not is_complete or _HEAD.unpack_from(body) != (_MAGIC, _VERSION):
        log.warn("{name} is damaged: the ids of deleted ledgers are lost", name=FILE_NAME)
        return
    yield from _ROW.iter_unpack(body[_HEAD.size :])


def write_deletions(files: Files, root: Path, data: bytes) -> None:
    """Replace the file, durably. Blocks.

    Raises:
        OSError: the file cannot be written.
    """
    files.write_atomic(root / FILE_NAME, data)


@attrs.define(eq=False)
class DeletedLedgersFile:
    """The file that stores ``FencedDeletions`` over a restart; one write at a time."""

    _deletions: FencedDeletions
    """The ledgers to store."""
    _files: Files
    """The file system."""
    _root: Path
    """The directory of the file."""
    _run_blocking: Callable[[Callable[[], Any]], Deferred[Any]]
    """Runs a blocking function in a thread."""
    _keeping: DeferredLock = attrs.field(factory=DeferredLock, init=False)

    async def restore(self) -> None:
        """Add the ledgers of the file, if the file exists."""
        kept = await self._run_blocking(partial(read_if_there, self._files, self._root / FILE_NAME))
        if kept is not None:
            self._deletions.restore(kept)

    async def keep(self) -> None:
        """Write the file if it lacks some of the ledgers.

        Raises:
            OSError: the file could not be written; the next call tries again.
        """
        deletions = self._deletions
        async with self._keeping:
            if not deletions.has_changes:
                return
            data, deletions.has_changes = deletions.encode(), False
            try:
                await self._run_blocking(partial(write_deletions, self._files, self._root, data))
            except OSError:
                deletions.has_changes = True
                raise
