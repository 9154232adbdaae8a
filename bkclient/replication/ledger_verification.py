"""Verification of a ledger: every copy of every entry is read and compared.

Java has no equivalent: its checker reads samples, and checks only that a bookie returns them.
"""

from __future__ import annotations

import contextlib
import enum
import random
from collections import Counter
from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Final

import attrs

from bkclient.client import Client
from bkclient.concurrency import for_each, map_each, rate_limit
from bkclient.errors import (
    BookieUnavailableError,
    ClientDigestMismatchError,
    ClientError,
    ClientUnauthorizedError,
    DigestNotInitializedError,
    LoginCutOffError,
    MetadataSerializationError,
    NoSuchLedgerError,
    ReadFailedError,
    RequestTimeoutError,
    SecurityError,
    refusal,
)
from bkclient.ledger.handover_state import confirmed_by_handover
from bkclient.ledger.reads.answer_verifier import AnswerVerifier
from bkclient.quorum.distribution import write_set
from bkclient.quorum.fragments import LedgerFragment, fragments_of
from bkclient.quorum.read_rules import NEGATIVE
from bkclient.replication.replica_check import OURS, LedgerView, view_ledger
from wire.codes import ENTRY_HEADER_BYTES, ProtocolVersion, ReturnCode
from wire.digest import Entry, header
from wire.errors import DigestMismatchError
from wire.ids import BookieId, EntryId, LedgerId
from wire.ledger_metadata import LedgerMetadata
from wire.messages import ReadRequest, Response

ENTRIES_AT_ONCE: Final = 64
"""Entries that are read singly at a time."""

BYTES_AT_ONCE: Final = 32 << 20
"""Bytes of copies in progress, estimated from the mean size so far."""

LEDGERS_AT_ONCE: Final = 32
"""Ledgers whose first and last entries are read together."""

_ENDS: Final = 0.0
"""The share that reads only the first and the last entry of each fragment."""

BATCH: Final = 512
"""The most entries of a batch; fewer if entries are large."""

BATCH_FIRST: Final = 16
"""Entries of a batch while their size is unknown."""

TRIES: Final = 3
"""Reads of a ledger whose copies move during the verification."""

SILENCES_MAX: Final = 3
"""Unanswered reads of a bookie before no more are sent to it."""

RANGES_MAX: Final = 250_000
"""The most ranges of bad copies in memory for one bookie and flaw: 32 MB."""

_NO_ANSWER: Final = (
    BookieUnavailableError,
    ClientUnauthorizedError,
    RequestTimeoutError,
    SecurityError,
)
"""Errors of the bookie or its connection. Any other error concerns the requested entry alone."""


class Flaw(enum.Enum):
    """A defect of one copy."""

    MISSING = "missing"
    DAMAGED = "damaged"
    """The copy does not match its digest, or is another entry."""
    DIFFERING = "differing"
    """The copy matches its digest, but differs from most of the others."""
    UNREADABLE = "unreadable"
    """The bookie did not answer, or could not read the copy, which may exist."""


@attrs.frozen
class BadCopies:
    """Copies with the same flaw on one bookie: entries as ranges, both ends included.

    ``count`` is exact. If there are more than ``RANGES_MAX`` ranges, the last range also covers
    intact copies.
    """

    bookie_id: BookieId
    flaw: Flaw
    entries: tuple[tuple[EntryId, EntryId], ...]
    count: int
    why: str
    """The error or difference of the first of these copies."""
    is_silent: bool = False
    """True if the bookie did not answer; False if it answered with an error."""
    is_refused: bool = False
    """True if the bookie refused the client."""


@attrs.frozen(kw_only=True)
class LedgerVerification:
    """The result of the verification of one ledger.

    ``end_known`` is False if too few bookies of the last fragment answered to know the LAC: that
    fragment was skipped. ``digests_checked`` is False if the metadata has no password.
    """

    ledger_id: LedgerId
    metadata: LedgerMetadata
    entries: int
    copies: int
    size: int
    bad: tuple[BadCopies, ...]
    end_known: bool = True
    digests_checked: bool = True
    entries_lost: int = 0
    """The number of entries without a readable copy."""

    @property
    def sound(self) -> bool:
        """True if every copy exists and is correct, and the end is known."""
        return not self.bad and self.end_known


@attrs.frozen
class VerifyProgress:
    """The progress: verified entries and all entries to verify."""

    done: int
    total: int


async def verify(
    client: Client, ledger_id: LedgerId, share: float, rng: random.Random, *, bytes_per_s: int = 0
) -> AsyncIterator[VerifyProgress | LedgerVerification]:
    """Read and compare the copies of ``share`` of the entries; yield the progress, then the result.

    ``bytes_per_s`` limits the bytes read from all copies together; 0 means no limit.

    The first and the last entry of each fragment are always read. No writer is fenced: an open
    ledger is read up to its last confirmed entry.

    Raises:
        NoSuchLedgerError: the ledger does not exist.
        MetadataSerializationError: the ledger's metadata cannot be read.
    """
    for more in reversed(range(TRIES)):
        ledger = with_handover_end(await view_ledger(client, ledger_id))
        run = _Verification(client, ledger, bytes_per_s)
        async for step in run.read_all(share, rng):
            yield step
        outcome = run.outcome()
        if outcome.sound or not more or not await _has_moved(client, ledger):
            yield outcome
            return


@attrs.frozen
class LossCheck:
    """The progress of a search for lost ledgers, and the findings since the previous step."""

    looked_at: int
    lost: tuple[LedgerId, ...]
    bad: tuple[LedgerId, ...]
    """Ledgers that are not lost, but have bad copies on bookies that answer."""
    away: frozenset[BookieId]
    """Bookies of closed ledgers that are not registered, or do not answer.

    Ledgers with these bookies were not checked.
    """


async def lost_ledgers(client: Client, ledger_ids: Sequence[LedgerId]) -> AsyncIterator[LossCheck]:
    """Search for closed ledgers that have lost entries; yield the findings group by group.

    The first and the last entry of every fragment of each closed ledger are read. A ledger is lost
    if none of its bookies has one of these entries. A ledger with a bookie that is not registered,
    or that does not answer, is skipped, because that bookie may have the entries.
    """
    store = client.store
    in_service = set(await store.registered_bookies())
    for start in range(0, len(ledger_ids), LEDGERS_AT_ONCE):
        some = ledger_ids[start : start + LEDGERS_AT_ONCE]
        lost, bad, away = list[LedgerId](), list[LedgerId](), set[BookieId]()

        async def look(
            ledger_id: LedgerId,
            lost: list[LedgerId] = lost,
            bad: list[LedgerId] = bad,
            away: set[BookieId] = away,
        ) -> None:
            try:
                metadata = (await client.read_metadata(ledger_id)).value
            except (NoSuchLedgerError, MetadataSerializationError):
                return
            if not metadata.is_closed:
                return
            if missing := metadata.all_bookies() - in_service:
                away.update(missing)
            elif (ends := await _read_ends(client, ledger_id)) is not None:
                silent = {one.bookie_id for one in ends.bad if one.is_silent or one.is_refused}
                # Otherwise each group would wait for these bookies again.
                in_service.difference_update(silent)
                if ends.entries_lost and all(one.flaw is Flaw.MISSING for one in ends.bad):
                    lost.append(ledger_id)
                elif any(one.bookie_id not in silent for one in ends.bad):
                    bad.append(ledger_id)

        await for_each(some, look, LEDGERS_AT_ONCE)
        yield LossCheck(start + len(some), tuple(sorted(lost)), tuple(sorted(bad)), frozenset(away))


async def _read_ends(client: Client, ledger_id: LedgerId) -> LedgerVerification | None:
    """Read all copies of the first and last entries; return None for a deleted ledger."""
    try:
        steps = [step async for step in verify(client, ledger_id, _ENDS, random.Random(0))]
    except (NoSuchLedgerError, MetadataSerializationError):
        return None
    outcome = steps[-1]
    assert isinstance(outcome, LedgerVerification)
    return outcome


def with_handover_end(ledger: LedgerView) -> LedgerView:
    """Return the view with the end that a handover recorded, if the bookies know a lower LAC."""
    if ledger.lac is None:
        return ledger
    handed_over_lac = confirmed_by_handover(ledger.ledger_id, ledger.metadata)
    return attrs.evolve(ledger, lac=max(ledger.lac, handed_over_lac))


async def _has_moved(client: Client, ledger: LedgerView) -> bool:
    """Return whether the ensembles have changed: a repair has ended since."""
    now = (await client.read_metadata(ledger.ledger_id)).value
    return now.fragments != ledger.metadata.fragments


def sampled_entries(
    fragment: LedgerFragment, share: float, rng: random.Random
) -> Iterator[EntryId]:
    """Yield the first and the last entry of a fragment, and ``share`` of the others, ascending.

    A share of 1 yields every entry.
    """
    if fragment.last < fragment.first:
        return
    if not share:
        yield from sorted({fragment.first, fragment.last})
        return
    between = 1 / share - 1
    at: int = fragment.first
    while at < fragment.last:
        yield EntryId(at)
        at += 1 + (int(2 * between * rng.random() + 0.5) if between else 0)
    yield fragment.last


def in_ranges(entries: Iterable[int]) -> tuple[tuple[EntryId, EntryId], ...]:
    """Return entry ids as ranges, both ends included."""
    found: list[list[int]] = []
    for entry_id in sorted(entries):
        if found and found[-1][1] + 1 == entry_id:
            found[-1][1] = entry_id
        else:
            found.append([entry_id, entry_id])
    return tuple((EntryId(first), EntryId(last)) for first, last in found)


@attrs.define
class EntryRanges:
    """Entry ids as ranges, both ends included, and their exact number.

    At ``ranges_max`` ranges the last one grows: it then also covers ids that were not added.
    """

    ranges_max: int = RANGES_MAX
    ranges: list[tuple[EntryId, EntryId]] = attrs.field(factory=list)
    count: int = 0

    def add(self, entries: Collection[EntryId]) -> None:
        """Add ids, in any order, that are all higher than the ids so far."""
        self.count += len(entries)
        for first, last in in_ranges(entries):
            before = self.ranges[-1] if self.ranges else None
            if before and (before[1] + 1 == first or len(self.ranges) >= self.ranges_max):
                self.ranges[-1] = before[0], last
            else:
                self.ranges.append((first, last))


@attrs.define
class _BadCopyGroup:
    """Bad copies with one flaw on one bookie, during the verification."""

    why: str
    batch: list[EntryId] = attrs.field(factory=list)
    """The bad copies of the current batch."""
    entries: EntryRanges = attrs.field(factory=EntryRanges)


class CopyReader:
    """A reader of single copies of one ledger's entries, each from a named bookie."""

    def __init__(self, client: Client, ledger: LedgerView) -> None:
        self._ledger_id, self._pool = ledger.ledger_id, client.cluster.pool
        self._digester = ledger.keys.digester
        self._verifier = AnswerVerifier(ledger.ledger_id, self._digester)
        self._wait_s = float(client.config.read_timeout_s)
        self.can_verify = ledger.metadata.password is not None
        """False without a password in the metadata: the digest may differ from the configured
        one.
        """

    async def read_many(self, bookie_id: BookieId, entries: Sequence[EntryId]) -> list[Entry]:
        """Return the intact copies from one bulk read; errors only mean fewer copies."""
        if not self.can_verify:
            return []
        verify, ledger_id, found = self._digester.verify, self._ledger_id, []
        try:
            channel = await self._pool.channel(bookie_id, ledger_id, ProtocolVersion.V2)
            answers = await channel.read_many(ledger_id, entries, self._wait_s)
        except OURS:
            raise
        except ClientError:
            return []
        for entry_id, answer in answers.items():
            if isinstance(answer, bytes):
                with contextlib.suppress(DigestMismatchError):
                    found.append(verify(ledger_id, entry_id, answer))
        return found

    @property
    def payload_at(self) -> int:
        """The offset of the payload in a packet; the end of the header if the digest is unknown."""
        return ENTRY_HEADER_BYTES + (self._digester.size if self.can_verify else 0)

    async def read(self, bookie_id: BookieId, entry_id: EntryId) -> Entry | bytes:
        """Return a verified copy, or the packet if it cannot be verified.

        Raises:
            ClientError: the bookie does not return the copy, or the copy is damaged.
        """
        return self.verified(bookie_id, entry_id, await self.packet(bookie_id, entry_id))

    async def packet(self, bookie_id: BookieId, entry_id: EntryId) -> bytes:
        """Return the bytes of a copy, not verified.

        Raises:
            ClientError: the bookie does not return the copy.
        """
        request = ReadRequest(self._ledger_id, entry_id)
        response: Response = await self._pool.send(bookie_id, request)
        if response.rc is not ReturnCode.EOK:
            raise refusal(response.rc, ReadFailedError, f"bookie {bookie_id}")
        packet: bytes | None = getattr(response, "entry", None)
        if packet is None:
            raise ReadFailedError(f"bookie {bookie_id}: an answer without the entry")
        return packet

    def verified(self, bookie_id: BookieId, entry_id: EntryId, packet: bytes) -> Entry | bytes:
        """Return the entry in a packet, or the packet if it cannot be verified.

        Raises:
            ClientDigestMismatchError: the packet is damaged, or of another entry.
        """
        if self.can_verify:
            return self._verifier.packet(bookie_id, packet, entry_id)
        if len(packet) < ENTRY_HEADER_BYTES:
            raise ClientDigestMismatchError(
                f"bookie {bookie_id} returned bytes that are not an entry"
            )
        return packet


class _Verification:
    """The verification of one ledger, and its result."""

    def __init__(self, client: Client, ledger: LedgerView, bytes_per_s: int) -> None:
        """Read at most ``bytes_per_s``; 0 means no limit."""
        self._ledger = ledger
        self._rate = rate_limit(client.cluster.clock, bytes_per_s)
        self._bytes_at_once = min(BYTES_AT_ONCE, bytes_per_s or BYTES_AT_ONCE)
        self._copies = CopyReader(client, ledger)
        self._found: dict[tuple[BookieId, Flaw], _BadCopyGroup] = {}
        self._silent: Counter[BookieId] = Counter()
        self._refusing: set[BookieId] = set()
        self._entries_read = self._copies_read = self._size = self._entries_lost = 0

    async def read_all(self, share: float, rng: random.Random) -> AsyncIterator[VerifyProgress]:
        """Read and compare the copies of ``share`` of the entries; yield the progress."""
        fragments = fragments_of(self._ledger.metadata, self._ledger.lac)
        total = max(1, int(sum(max(0, f.last - f.first + 1) for f in fragments) * share))
        done = 0
        for fragment in fragments:
            entries = sampled_entries(fragment, share, rng)
            while batch := list(islice(entries, self._batch_entries())):
                before = self._size
                await self._read(fragment, batch)
                await self._rest(self._size - before)
                done += len(batch)
                yield VerifyProgress(min(done, total), total)

    async def _rest(self, size: int) -> None:
        """Wait until the rate limit allows ``size`` bytes."""
        if self._rate is not None:
            self._rate.take(size)
            await self._rate.turn(0)

    def _batch_entries(self) -> int:
        """Return the entries of the next batch, from the mean size so far."""
        if not self._copies_read:
            return BATCH_FIRST
        entry_bytes = max(1, self._size // self._copies_read) * self._ledger.metadata.write_quorum
        return max(1, min(BATCH, self._bytes_at_once // entry_bytes))

    async def _read(self, fragment: LedgerFragment, entries: list[EntryId]) -> None:
        """Read and compare all copies: in bulk first, then the missing copies singly."""
        placed = {entry_id: self._places(fragment, entry_id) for entry_id in entries}
        copies = await self._in_bulk(placed)
        rest = [entry_id for entry_id in entries if len(copies[entry_id]) < len(placed[entry_id])]
        for entry_id in entries:
            if len(copies[entry_id]) == len(placed[entry_id]):
                self._settle(fragment, entry_id, placed[entry_id], copies[entry_id], {})

        async def look(entry_id: EntryId) -> None:
            found = copies[entry_id]
            failed = await self._singly(placed[entry_id], found, entry_id)
            self._settle(fragment, entry_id, placed[entry_id], found, failed)

        await for_each(rest, look, ENTRIES_AT_ONCE)
        for bad in self._found.values():
            bad.entries.add(bad.batch)
            bad.batch.clear()

    def _places(self, fragment: LedgerFragment, entry_id: EntryId) -> list[BookieId]:
        indexes = write_set(entry_id, len(fragment.ensemble), fragment.write_quorum)
        return [fragment.ensemble[index] for index in indexes]

    async def _in_bulk(
        self, placed: Mapping[EntryId, list[BookieId]]
    ) -> dict[EntryId, dict[BookieId, Entry | bytes]]:
        """Return the intact copies from bulk reads."""
        found: dict[EntryId, dict[BookieId, Entry | bytes]] = {one: {} for one in placed}
        wanted: dict[BookieId, list[EntryId]] = {}
        for entry_id, bookies in placed.items():
            for bookie_id in bookies:
                if self._silent[bookie_id] < SILENCES_MAX:
                    wanted.setdefault(bookie_id, []).append(entry_id)

        async def ask(bookie_id: BookieId) -> None:
            for entry in await self._copies.read_many(bookie_id, wanted[bookie_id]):
                found[entry.entry_id][bookie_id] = entry

        await for_each(wanted, ask, max(1, len(wanted)))
        return found

    async def _singly(
        self, bookies: list[BookieId], found: dict[BookieId, Entry | bytes], entry_id: EntryId
    ) -> dict[BookieId, ClientError]:
        """Read the missing copies into ``found``; return the errors of the others."""
        failed: dict[BookieId, ClientError] = {}

        async def one(bookie_id: BookieId) -> None:
            try:
                found[bookie_id] = await self._copy(bookie_id, entry_id)
            except OURS:
                raise
            except ClientError as error:
                failed[bookie_id] = error

        await for_each([b for b in bookies if b not in found], one, len(bookies))
        return failed

    def _settle(
        self,
        fragment: LedgerFragment,
        entry_id: EntryId,
        bookies: list[BookieId],
        read: dict[BookieId, Entry | bytes],
        failed: dict[BookieId, ClientError],
    ) -> None:
        """Record the result of one entry's copies."""
        unknown = [error for error in failed.values() if not isinstance(error, NEGATIVE)]
        if fragment.may_be_empty and not read and not unknown:
            return  # The entry may never have been written.
        self._entries_read += 1
        self._copies_read += len(bookies)
        self._entries_lost += not (read or fragment.may_be_empty)
        for bookie_id, error in failed.items():
            self._note(bookie_id, flaw_of(error), entry_id, str(error))
        self._compare(bookies, read, entry_id)

    async def _copy(self, bookie_id: BookieId, entry_id: EntryId) -> Entry | bytes:
        if self._silent[bookie_id] >= SILENCES_MAX:
            raise ReadFailedError("not read: the bookie did not answer earlier reads")
        try:
            return await self._copies.read(bookie_id, entry_id)
        except ClientError as error:
            self._silent[bookie_id] += isinstance(error, _NO_ANSWER)
            if isinstance(error, (ClientUnauthorizedError, LoginCutOffError)):
                self._refusing.add(bookie_id)
            raise

    def _compare(
        self, bookies: list[BookieId], read: dict[BookieId, Entry | bytes], entry_id: EntryId
    ) -> None:
        """Record copies that differ from most copies."""
        contents = {bookie: content_of(read[bookie]) for bookie in bookies if bookie in read}
        if not contents:
            return
        right, why = prevalent(list(contents.values()))
        self._size += right[1] * len(contents)
        for bookie_id, content in contents.items():
            if content != right:
                self._note(bookie_id, Flaw.DIFFERING, entry_id, why)

    def _note(self, bookie_id: BookieId, flaw: Flaw, entry_id: EntryId, why: str) -> None:
        self._found.setdefault((bookie_id, flaw), _BadCopyGroup(why)).batch.append(entry_id)

    def outcome(self) -> LedgerVerification:
        """Return the result."""
        bad = (
            BadCopies(
                bookie,
                flaw,
                tuple(one.entries.ranges),
                one.entries.count,
                one.why,
                flaw is Flaw.UNREADABLE and self._silent[bookie] > 0,
                flaw is Flaw.UNREADABLE and bookie in self._refusing,
            )
            for (bookie, flaw), one in self._found.items()
        )
        return LedgerVerification(
            ledger_id=self._ledger.ledger_id,
            metadata=self._ledger.metadata,
            entries=self._entries_read,
            copies=self._copies_read,
            size=self._size,
            bad=tuple(sorted(bad, key=lambda one: (one.bookie_id, one.flaw.value))),
            end_known=self._ledger.lac is not None,
            digests_checked=self._copies.can_verify,
            entries_lost=self._entries_lost,
        )


def flaw_of(error: ClientError) -> Flaw:
    """Return the flaw of a copy that could not be read because of ``error``."""
    if isinstance(error, NEGATIVE):
        return Flaw.MISSING
    return Flaw.DAMAGED if isinstance(error, ClientDigestMismatchError) else Flaw.UNREADABLE


Content = tuple[int, int, bytes]
"""The parts that must be equal in all copies of an entry: length, size and payload."""


def content_of(copy: Entry | bytes) -> Content:
    """Return the parts that must be equal in all copies of an entry.

    The LAC may differ: a recovery writes another LAC, and so another digest.
    """
    if isinstance(copy, Entry):
        return copy.length, len(copy.payload), copy.payload
    return header(copy).length, len(copy), b""


def prevalent(contents: Sequence[Content]) -> tuple[Content, str]:
    """Return the most frequent content, on a tie the first, and the reason for the other copies."""
    right, count = Counter(contents).most_common(1)[0]
    return right, f"{count} of {len(contents)} readable copies differ from this copy"


@attrs.frozen
class Copy:
    """One bookie's copy of one entry: a verified entry, or an error."""

    entry_id: EntryId
    entry: Entry | None
    error: ClientError | None = None


def entries_of(metadata: LedgerMetadata, bookie_id: BookieId, last: EntryId) -> Iterator[EntryId]:
    """Yield the entries up to ``last`` with the bookie in their write set, ascending."""
    for fragment in fragments_of(metadata, last):
        places = [n for n, bookie in enumerate(fragment.ensemble) if bookie == bookie_id]
        yield from (e for e in fragment.entries_at_any(places) if e <= last)


async def read_copies(
    client: Client, ledger_id: LedgerId, bookie_id: BookieId, entries: Iterable[EntryId]
) -> AsyncIterator[list[Copy]]:
    """Yield one bookie's copies of these entries, in order, several at a time.

    Raises:
        NoSuchLedgerError: the ledger does not exist.
        ClientError: the bookie does not answer.
    """
    ledger = await view_ledger(client, ledger_id)
    reader = CopyReader(client, ledger)
    iterator = iter(entries)
    while batch := list(islice(iterator, ENTRIES_AT_ONCE)):
        yield await map_each(batch, partial(_copy_of, reader, bookie_id), ENTRIES_AT_ONCE)


async def _copy_of(reader: CopyReader, bookie_id: BookieId, entry_id: EntryId) -> Copy:
    try:
        entry = await reader.read(bookie_id, entry_id)
    except ClientError as error:
        if isinstance(error, _NO_ANSWER):
            raise
        return Copy(entry_id, None, error)
    if isinstance(entry, bytes):
        raise DigestNotInitializedError("the metadata does not say which digest the entries have")
    return Copy(entry_id, entry)
