"""A map of the entries of a ledger on each bookie, as reported by the bookies.

Each bookie is asked for its list of a ledger's entries (BookKeeper 4.18.0,
getListOfEntriesOfLedger). If it cannot return the list, because it is old or the list exceeds a
frame, the first and the last entry at each of its places are read instead.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final, Union

import attrs

from bkclient.client import Client
from bkclient.concurrency import map_each
from bkclient.errors import (
    BookieUnavailableError,
    ClientError,
    ReadFailedError,
    RequestTimeoutError,
)
from bkclient.ledger.reads.answer_verifier import AnswerVerifier
from bkclient.quorum.fragments import LedgerFragment, fragments_of
from bkclient.quorum.read_rules import NEGATIVE
from bkclient.quorum.replica_counts import Run, count_at, count_held, runs
from bkclient.replication.ledger_verification import with_handover_end
from bkclient.replication.replica_check import OURS, LedgerView, list_entries, view_ledger
from wire.errors import FormatError
from wire.ids import BookieId, EntryId, LedgerId
from wire.ledger_metadata import LedgerMetadata
from wire.messages import ReadRequest, Response

ASKED_AT_ONCE: Final = 16

_SILENT: Final = (BookieUnavailableError, RequestTimeoutError)


class Health(enum.Enum):
    """The health of the replicas at one place in an ensemble."""

    OK = "ok"
    """The bookie has every entry of the place."""
    PARTLY = "partly"
    """The bookie has some of the entries."""
    MISSING = "missing"
    """The bookie has none of the entries."""
    UNREACHABLE = "unreachable"
    """The bookie does not answer."""
    UNKNOWN = "unknown"
    """The bookie answers with an error, or the end of the fragment is unknown."""
    EMPTY = "empty"
    """The place has no entries."""


@attrs.frozen(kw_only=True)
class ReplicaPlace:
    """One bookie's place in one fragment. ``held`` is None if the number is unknown.

    ``why`` is the error that prevented an exact count, or "".
    """

    bookie_id: BookieId
    health: Health
    expected: int | None = None
    held: int | None = None
    why: str = ""


@attrs.frozen(kw_only=True)
class MappedFragment:
    """A fragment with the health of each of its places, in the order of its ensemble.

    ``last`` is None if unknown; if it is below ``first``, the fragment is empty. ``copies`` is the
    number of intact replicas of the entry with the fewest; None if unknown.
    """

    first: EntryId
    last: EntryId | None
    is_closed: bool
    places: tuple[ReplicaPlace, ...]
    copies: int | None


@attrs.frozen(kw_only=True)
class ReplicaMap:
    """A ledger and its replicas."""

    ledger_id: LedgerId
    metadata: LedgerMetadata
    lac: EntryId | None
    fragments: tuple[MappedFragment, ...]

    @property
    def is_intact(self) -> bool:
        """True if every replica is known to exist."""
        return all(
            place.health in {Health.OK, Health.EMPTY}
            for fragment in self.fragments
            for place in fragment.places
        )


_Listed = Union[Sequence[Run], ClientError]
"""A bookie's entries as runs, ascending and disjoint; or the error instead of its list."""


async def map_replicas(client: Client, ledger_id: LedgerId) -> ReplicaMap:
    """Ask every bookie for its entries of a ledger. No writer is fenced, nothing is written.

    Raises:
        NoSuchLedgerError: the ledger does not exist.
        MetadataSerializationError: the ledger's metadata cannot be read.
    """
    ledger = with_handover_end(await view_ledger(client, ledger_id))
    bookies = sorted(ledger.metadata.all_bookies())
    lists = await map_each(bookies, partial(_listed, client, ledger_id), ASKED_AT_ONCE)
    listed = dict(zip(bookies, lists, strict=True))
    reads = _Reads(client, ledger)
    known = {one.first: one for one in fragments_of(ledger.metadata, ledger.lac)}
    mapped = []
    for stored in ledger.metadata.fragments:
        fragment = known.get(stored.first_entry_id)
        if fragment is None:
            mapped.append(_unknown(stored.first_entry_id, stored.ensemble))
        else:
            mapped.append(await _map(fragment, listed, reads))
    return ReplicaMap(
        ledger_id=ledger_id, metadata=ledger.metadata, lac=ledger.lac, fragments=tuple(mapped)
    )


async def _listed(client: Client, ledger_id: LedgerId, bookie: BookieId) -> _Listed:
    try:
        return runs(await list_entries(client, ledger_id, bookie))
    except OURS:
        raise
    except ClientError as error:
        return error
    except FormatError as error:
        return ReadFailedError(f"bookie {bookie}: {error}")


async def _map(
    fragment: LedgerFragment, listed: Mapping[BookieId, _Listed], reads: _Reads
) -> MappedFragment:
    places = []
    for index, bookie in enumerate(fragment.ensemble):
        held = listed[bookie]
        if isinstance(held, ClientError):
            places.append(await reads.place(fragment, index, held))
        else:
            places.append(_counted(fragment, index, held))
    empty = fragment.last < fragment.first or fragment.may_be_empty
    return MappedFragment(
        first=fragment.first,
        last=EntryId(fragment.first - 1) if fragment.may_be_empty else fragment.last,
        is_closed=fragment.is_closed,
        places=tuple(places),
        copies=None if empty else copies(fragment, places),
    )


def _counted(fragment: LedgerFragment, index: int, held: Sequence[Run]) -> ReplicaPlace:
    expected = (
        0 if fragment.may_be_empty else count_at(fragment, index, fragment.first, fragment.last)
    )
    found = count_held(fragment, index, held)
    if not expected:
        health = Health.EMPTY
    elif found >= expected:
        health = Health.OK
    else:
        health = Health.PARTLY if found else Health.MISSING
    return ReplicaPlace(
        bookie_id=fragment.ensemble[index], health=health, expected=expected, held=found
    )


def _unknown(first: EntryId, ensemble: Sequence[BookieId]) -> MappedFragment:
    why = "too few bookies answer to know the end of the ledger"
    return MappedFragment(
        first=first,
        last=None,
        is_closed=False,
        places=tuple(ReplicaPlace(bookie_id=b, health=Health.UNKNOWN, why=why) for b in ensemble),
        copies=None,
    )


def copies(fragment: LedgerFragment, places: Sequence[ReplicaPlace]) -> int | None:
    """Return the intact replicas of the entry with the fewest; None if a place is unknown."""
    by_bookie = {place.bookie_id: place.health for place in places}
    fewest: int | None = None
    for holders in fragment.write_sets():
        healths = [by_bookie[bookie] for bookie in holders]
        if Health.UNKNOWN in healths:
            return None
        whole = healths.count(Health.OK)
        fewest = whole if fewest is None else min(fewest, whole)
    return fewest


class _Reads:
    """Single reads in place of a missing list; a bookie that does not answer is asked only once."""

    def __init__(self, client: Client, ledger: LedgerView) -> None:
        self._pool, self._ledger_id = client.cluster.pool, ledger.ledger_id
        self._verifier = AnswerVerifier(ledger.ledger_id, ledger.keys.digester)
        self._silent: dict[BookieId, ClientError] = {}

    async def place(self, fragment: LedgerFragment, index: int, error: ClientError) -> ReplicaPlace:
        """Return the health of a place from its first and last entry."""
        bookie = fragment.ensemble[index]
        ends = None if fragment.may_be_empty else fragment.ends_at(index)
        if ends is None:
            return ReplicaPlace(bookie_id=bookie, health=Health.EMPTY, expected=0)
        # Read even if the list request timed out: the list may have exceeded a frame.
        said = [await self._has(bookie, entry_id) for entry_id in dict.fromkeys(ends)]
        health = next((one for one in said if one is not Health.OK), Health.OK)
        if health is Health.MISSING and Health.OK in said:
            health = Health.PARTLY
        if health is Health.UNREACHABLE:
            why = str(self._silent[bookie])
        else:
            why = f"only the first and last entries were read: {error}"
        return ReplicaPlace(bookie_id=bookie, health=health, why=why)

    async def _has(self, bookie: BookieId, entry_id: EntryId) -> Health:
        if bookie in self._silent:
            return Health.UNREACHABLE
        try:
            response: Response = await self._pool.send(
                bookie, ReadRequest(self._ledger_id, entry_id)
            )
            self._verifier.entry(bookie, response, entry_id)
        except OURS:
            raise
        except NEGATIVE:
            return Health.MISSING
        except _SILENT as error:
            self._silent[bookie] = error
            return Health.UNREACHABLE
        except ClientError:
            return Health.UNKNOWN
        return Health.OK
