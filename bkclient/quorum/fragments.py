"""The rules of fragments: missing replicas, their copies, and replaced bookies. No I/O.

Agrees with BookKeeper 4.18.0, LedgerFragment, LedgerChecker and LedgerFragmentReplicator, except:

* A fragment is closed unless it is the last one of a ledger that is not closed. The writer of the
  last fragment's first entry knew that all entries before it were confirmed, and recovery knows
  this, too. Java also waits for a LAC that proves this, because its handle refuses to read beyond
  the LAC (#3917).
* Each copy is for one place in the ensemble, and consists of the entries striped to that place.
* A swap is refused if the fragment does not exist any more, may grow again, or would list a bookie
  twice.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Mapping

import attrs

from bkclient.errors import ReplicationError
from bkclient.quorum.distribution import is_striped_to, write_set
from wire.ids import BookieId, EntryId
from wire.ledger_metadata import Fragment, LedgerMetadata


class FragmentChangedError(ReplicationError):
    """The fragment has changed since its copy began; the ledger has to be checked again."""


@attrs.frozen(kw_only=True)
class LedgerFragment:
    """A fragment, and the entries known to be in it: none if ``last`` is before ``first``.

    ``is_closed``: neither a writer nor a recovery will change it. ``may_be_empty``: its first entry
    is included, but may never have been written.
    """

    first: EntryId
    last: EntryId
    ensemble: tuple[BookieId, ...]
    write_quorum: int
    is_closed: bool
    may_be_empty: bool = False

    def holds(self, entry_id: int, index: int) -> bool:
        """Return whether an entry is striped to a place in the ensemble."""
        return is_striped_to(entry_id, index, len(self.ensemble), self.write_quorum)

    def entries_at(self, index: int) -> Iterator[EntryId]:
        """Yield the entries at a place in the ensemble, ascending."""
        return self.entries_at_any((index,))

    def entries_at_any(self, indexes: Collection[int]) -> Iterator[EntryId]:
        """Yield the entries at any of these places, ascending."""
        for entry_id in range(self.first, self.last + 1):
            if any(self.holds(entry_id, index) for index in indexes):
                yield EntryId(entry_id)

    def count_at(self, index: int) -> int:
        """Return the number of entries at a place in the ensemble."""
        size = len(self.ensemble)
        rounds, rest = divmod(max(0, self.last - self.first + 1), size)
        behind = range(self.last - rest + 1, self.last + 1)
        return rounds * self.write_quorum + sum(self.holds(e, index) for e in behind)

    def write_sets(self) -> Iterator[frozenset[BookieId]]:
        """Yield the write set of each kind of entry: as many as bookies, or as entries if fewer."""
        size = len(self.ensemble)
        for entry_id in range(self.first, min(self.last, self.first + size - 1) + 1):
            indexes = write_set(entry_id, size, self.write_quorum)
            yield frozenset(self.ensemble[index] for index in indexes)

    def ends_at(self, index: int) -> tuple[EntryId, EntryId] | None:
        """Return the first and the last entry at a place; ``None`` without entries."""
        near_first = range(self.first, min(self.last, self.first + len(self.ensemble) - 1) + 1)
        near_last = range(self.last, max(self.first, self.last - len(self.ensemble) + 1) - 1, -1)
        first = next((e for e in near_first if self.holds(e, index)), None)
        last = next((e for e in near_last if self.holds(e, index)), None)
        return None if first is None or last is None else (EntryId(first), EntryId(last))


@attrs.frozen
class MissingPlaces:
    """A fragment and the places in its ensemble whose replicas are missing or may be lost.

    Places are repaired in the order of ``indexes``, as far as there are bookies for them.
    ``unanswered`` maps a place to the entries for which its bookie did not answer; the bookie may
    have them.
    """

    fragment: LedgerFragment
    indexes: tuple[int, ...]
    unanswered: Mapping[int, frozenset[EntryId]] = attrs.field(factory=dict)

    @property
    def bookies(self) -> tuple[BookieId, ...]:
        """The bookies at those places."""
        return tuple(self.fragment.ensemble[index] for index in self.indexes)


def is_closed_fragment(metadata: LedgerMetadata, first: int) -> bool:
    """Return whether the fragment that begins with ``first`` is final."""
    return metadata.is_closed or first != metadata.last_fragment.first_entry_id


def fragments_of(metadata: LedgerMetadata, lac: int | None) -> tuple[LedgerFragment, ...]:
    """Return the fragments with their entries.

    The last fragment of a ledger that is not closed ends with ``lac``. If ``lac`` is before the
    fragment, its first entry may have been written nevertheless. Without a LAC the last fragment is
    left out.
    """
    starts = [fragment.first_entry_id for fragment in metadata.fragments]
    found = [
        _fragment(metadata, fragment, following - 1, is_closed=True)
        for fragment, following in zip(metadata.fragments, starts[1:], strict=False)
    ]
    last = metadata.last_fragment
    if metadata.last_entry_id is not None:
        found.append(_fragment(metadata, last, metadata.last_entry_id, is_closed=True))
    elif lac is not None:
        doubtful = lac < last.first_entry_id
        end = last.first_entry_id if doubtful else lac
        found.append(_fragment(metadata, last, end, is_closed=False, may_be_empty=doubtful))
    return tuple(found)


def _fragment(
    metadata: LedgerMetadata,
    fragment: Fragment,
    last: int,
    *,
    is_closed: bool,
    may_be_empty: bool = False,
) -> LedgerFragment:
    return LedgerFragment(
        first=fragment.first_entry_id,
        last=EntryId(last),
        ensemble=fragment.ensemble,
        write_quorum=metadata.write_quorum,
        is_closed=is_closed,
        may_be_empty=may_be_empty,
    )


def samples(
    fragment: LedgerFragment, index: int, percentage: float, rng: random.Random
) -> Iterator[EntryId]:
    """Yield the entries to read at a place, to check that its replicas exist.

    These are the first and the last entry there, and between them about one random entry of each of
    as many parts as make ``percentage`` of the entries; with 100 all entries.
    """
    ends = fragment.ends_at(index)
    if ends is None:
        return
    first, last = ends
    yield first
    entries = last - first + 1
    wanted = int(entries * (percentage / 100))
    if wanted >= entries:
        yield from (EntryId(e) for e in range(first + 1, last) if fragment.holds(e, index))
    else:
        yield from _one_of_each_part(fragment, index, (first, last), wanted, rng)
    if last > first:
        yield last


def _one_of_each_part(
    fragment: LedgerFragment, index: int, ends: tuple[int, int], parts: int, rng: random.Random
) -> Iterator[EntryId]:
    if parts < 1:
        return
    first, last = ends
    size = (last - first + 1) // parts
    for start in range(first, last - size - 1, size):
        entry_id = start + rng.randrange(size)
        if first < entry_id < last and fragment.holds(entry_id, index):
            yield EntryId(entry_id)


def needs_recovery(metadata: LedgerMetadata, available: Collection[BookieId]) -> bool:
    """Return whether a ledger must be closed before it can have all its replicas.

    Its last fragment may still grow, so it cannot be copied, and one of its bookies is lost. If
    more bookies are lost, the last entry becomes unknown. Unlike in Java, a bookie that only became
    read-only is not a reason to fence a writer.
    """
    return not metadata.is_closed and not set(metadata.ensemble) <= set(available)


def is_lost(fragment: LedgerFragment, available: Collection[BookieId]) -> bool:
    """Return whether the fragment has entries that no available bookie can have."""
    return any(holders.isdisjoint(available) for holders in fragment.write_sets())


def may_hold_entries(metadata: LedgerMetadata, bookie: BookieId) -> bool:
    """Return whether a bookie stores entries of a ledger, or may store some.

    The bookies of the last fragment of a ledger that is not closed may always store some.
    Agrees with BookKeeper 4.18.0, BookKeeperAdmin.areEntriesOfLedgerStoredInTheBookie.
    """
    if not metadata.is_closed and bookie in metadata.ensemble:
        return True
    return any(
        bookie in fragment.ensemble
        and fragment.ends_at(fragment.ensemble.index(bookie)) is not None
        for fragment in fragments_of(metadata, None)
    )


# Replaced bookies ------------------------------------------------------------------------------


@attrs.frozen
class Swap:
    """The old and the new bookie for places in a fragment's ensemble."""

    first: EntryId
    old: Mapping[int, BookieId]
    new: Mapping[int, BookieId]

    def of(self, ensemble: tuple[BookieId, ...]) -> tuple[BookieId, ...]:
        """Return the ensemble after the swap of bookies that are still in their places."""
        return tuple(
            self.new[index] if self.old.get(index) == bookie else bookie
            for index, bookie in enumerate(ensemble)
        )

    def without(self, places: Collection[int]) -> Swap:
        """Return the swap without these places."""
        kept = [index for index in self.new if index not in places]
        return Swap(self.first, {i: self.old[i] for i in kept}, {i: self.new[i] for i in kept})


def swap_between(fragment: LedgerFragment, ensemble: tuple[BookieId, ...]) -> Swap:
    """Return the swap that changes a fragment's ensemble into another."""
    places = [i for i, bookie in enumerate(fragment.ensemble) if ensemble[i] != bookie]
    return Swap(
        fragment.first,
        {index: fragment.ensemble[index] for index in places},
        {index: ensemble[index] for index in places},
    )


def swap_is_needed(metadata: LedgerMetadata, swap: Swap) -> bool:
    """Return whether any old bookie is still in the fragment.

    Raises:
        FragmentChangedError: the fragment does not exist any more.
    """
    ensemble = _ensemble_at(metadata, swap.first)
    return swap.of(ensemble) != ensemble


def swapped(metadata: LedgerMetadata, swap: Swap) -> LedgerMetadata:
    """Return the metadata with the new bookies in their places, otherwise unchanged.

    Raises:
        FragmentChangedError: the fragment is missing, may grow, or would list a bookie twice.
    """
    ensemble = swap.of(_ensemble_at(metadata, swap.first))
    if not is_closed_fragment(metadata, swap.first):
        raise FragmentChangedError(f"the fragment at entry {swap.first} may still grow")
    if len(set(ensemble)) < len(ensemble):
        raise FragmentChangedError(
            f"the fragment at entry {swap.first} has got one of the new bookies meanwhile: "
            + ", ".join(ensemble)
        )
    fragments = tuple(
        Fragment(f.first_entry_id, ensemble) if f.first_entry_id == swap.first else f
        for f in metadata.fragments
    )
    return attrs.evolve(metadata, fragments=fragments, creator_token=0)


def _ensemble_at(metadata: LedgerMetadata, first: int) -> tuple[BookieId, ...]:
    for fragment in metadata.fragments:
        if fragment.first_entry_id == first:
            return fragment.ensemble
    raise FragmentChangedError(f"there is no fragment at entry {first} any more")


def write_sets(metadata: LedgerMetadata) -> Iterator[frozenset[BookieId]]:
    """Yield the write set of each kind of entry that the ledger has or may have."""
    for fragment in _fragments(metadata):
        yield from fragment.write_sets()


def _fragments(metadata: LedgerMetadata) -> tuple[LedgerFragment, ...]:
    """Return the fragments; the last one of an open ledger may have entries of every kind."""
    last = metadata.last_fragment
    return fragments_of(metadata, last.first_entry_id + len(last.ensemble) - 1)


def is_only_copy(
    metadata: LedgerMetadata, bookie_id: BookieId, alive: Collection[BookieId]
) -> bool:
    """Return whether ``bookie_id`` may store an entry that no bookie in ``alive`` has.

    ``alive`` are the bookies that serve now, without ``bookie_id``: a copy on a stopped bookie may
    never come back.
    """
    serving = frozenset(alive) - {bookie_id}
    return any(
        bookie_id in holders and holders.isdisjoint(serving) for holders in write_sets(metadata)
    )


def is_out_of_reach(metadata: LedgerMetadata, alive: Collection[BookieId]) -> bool:
    """Return whether some entry of the ledger has no copy on any bookie in ``alive``."""
    return any(is_lost(fragment, alive) for fragment in _fragments(metadata))


def racks_with_all_copies(metadata: LedgerMetadata, racks: Mapping[BookieId, str]) -> set[str]:
    """Return the racks that contain every copy of some entry; ``racks`` are the known racks."""
    places = [racks.get(bookie_id) for bookie_id in metadata.all_bookies()]
    if all(places.count(rack) < metadata.write_quorum for rack in set(places) if rack is not None):
        return set()  # Usually the case.
    of_entries = ({racks.get(one) for one in holders} for holders in write_sets(metadata))
    return {rack for found in of_entries if len(found) == 1 for rack in found if rack is not None}


def fewest_racks(metadata: LedgerMetadata, racks: Mapping[BookieId, str]) -> int:
    """Return the number of racks with copies of an entry, for the entry in the fewest racks.

    Bookies that are not in ``racks`` count as one more rack.
    """
    return min(len({racks.get(one) for one in holders}) for holders in write_sets(metadata))


def lacks_copies(metadata: LedgerMetadata, alive: Collection[BookieId]) -> bool:
    """Return whether some entry of the ledger has too few copies on ``alive``."""
    serving = frozenset(alive)
    # The first comparison decides for most ledgers.
    return not metadata.all_bookies() <= serving and any(
        not holders <= serving for holders in write_sets(metadata)
    )
