"""Changing metadata by compare-and-swap: conflicts, lost replies, and when nothing is to do."""

from __future__ import annotations

import random
from collections.abc import Callable

import attrs
import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from bkclient.errors import (
    ClientLedgerFencedError,
    LedgerClosedError,
    MetadataVersionError,
    NoSuchLedgerError,
    UnexpectedConditionError,
)
from bkclient.metadata.errors import MetadataUnavailableError
from bkclient.metadata.ledger_metadata_updates import (
    LocalMetadata,
    Updater,
    as_closed,
    as_in_recovery,
    as_recovered,
    lists_a_failed_bookie,
    with_ensemble,
    writer_may_close,
)
from bkclient.metadata.versions_and_watches import Versioned
from wire.codes import DigestType, LedgerState
from wire.ids import BookieId, EntryId, LedgerId
from wire.ledger_metadata import Fragment, LedgerMetadata

L = LedgerId(3)
BOOKIES = tuple(BookieId(f"b{number}") for number in range(3))
OTHERS = tuple(BookieId(f"c{number}") for number in range(3))
OPEN = LedgerMetadata(
    ensemble_size=3,
    write_quorum=2,
    ack_quorum=2,
    fragments=(Fragment(EntryId(0), BOOKIES),),
    digest_type=DigestType.CRC32C,
    password=b"",
    creator_token=77,
)


class Store:
    """A ledger's metadata, and what happens to each write: implements what an update needs."""

    def __init__(self, metadata: LedgerMetadata = OPEN) -> None:
        self.current = Versioned(metadata, 0)
        self.script: list[Callable[[], None] | Exception | str] = []
        self.writes = 0
        self.local: LocalMetadata | None = None

    async def read_ledger(self, ledger_id: LedgerId) -> Versioned[LedgerMetadata]:
        return self.current

    async def write_ledger(
        self, ledger_id: LedgerId, metadata: LedgerMetadata, version: int
    ) -> int:
        self.writes += 1
        act = self.script.pop(0) if self.script else None
        if callable(act):
            act()
        if act == "lose the request":
            raise MetadataUnavailableError("lost")
        if version != self.current.version:
            raise MetadataVersionError("conflict")
        self.current = Versioned(metadata, version + 1)
        if act == "lose the reply":
            raise MetadataUnavailableError("lost")
        stored = self.current.version
        if act == "hear of the next change first":
            self.rewrite()
            assert self.local is not None
            self.local.install(self.current)
        return stored

    def rewrite(self) -> None:
        """Do what replication does."""
        changed = attrs.evolve(self.current.value, custom={"n": b"%d" % self.current.version})
        self.current = Versioned(changed, self.current.version + 1)


def is_open(metadata: LedgerMetadata) -> bool:
    return metadata.state is LedgerState.OPEN


def run(store: Store, clock: Clock | None = None, *, version: int = 0) -> list[object]:
    clock = clock or Clock()
    updater = Updater(store=store, clock=clock, rng=random.Random(0))  # type: ignore[arg-type]
    local = store.local = LocalMetadata(Versioned(OPEN, version))
    results: list[object] = []
    work = Deferred.fromCoroutine(updater.update(L, local, is_open, as_in_recovery))
    work.addBoth(lambda result: results.append(getattr(result, "value", result)))
    for _ in range(200):
        clock.advance(0.1)
    return [*results, Versioned(local.value, local.version)]


def test_a_change_is_written_and_installed() -> None:
    store = Store()
    result, local = run(store)
    assert result.state is LedgerState.IN_RECOVERY  # type: ignore[attr-defined]
    assert result.creator_token == 0  # type: ignore[attr-defined]
    assert local == store.current
    assert store.writes == 1


def test_what_is_there_already_is_not_written() -> None:
    store = Store()
    store.current = Versioned(as_in_recovery(OPEN), 5)
    store.script = [lambda: None]
    result, local = run(store)
    assert result == as_in_recovery(OPEN)
    assert local == store.current
    assert store.writes == 1, "the local copy was old; the conflict told"


@pytest.mark.parametrize("conflicts", [1, 2, 5, 12])
def test_conflicts_are_merged_however_many(conflicts: int) -> None:
    store = Store()
    store.script = [store.rewrite] * conflicts
    clock = Clock()
    result, _ = run(store, clock)
    assert result.state is LedgerState.IN_RECOVERY  # type: ignore[attr-defined]
    assert result.custom == {"n": b"%d" % (conflicts - 1)}  # type: ignore[attr-defined]
    assert store.writes == conflicts + 1


@pytest.mark.parametrize("loss", ["lose the reply", "lose the request"])
def test_a_lost_reply_is_looked_up(loss: str) -> None:
    store = Store()
    store.script = [loss]
    result, local = run(store)
    assert result == store.current.value
    assert local == store.current
    assert store.writes == (1 if loss == "lose the reply" else 2)


def test_what_holds_is_the_change_after_it_that_a_watch_told_first() -> None:
    store = Store()
    store.script = ["hear of the next change first"]
    result, local = run(store)
    assert local == store.current
    assert result == store.current.value
    assert store.writes == 1


def test_a_store_that_is_away_is_given_up() -> None:
    store = Store()
    store.script = ["lose the request"] * 10
    result, _ = run(store)
    assert isinstance(result, MetadataUnavailableError)
    assert is_open(store.current.value)


def test_another_ledger_under_the_id_is_no_conflict_that_passes() -> None:
    store = Store()

    store.current = Versioned(attrs.evolve(OPEN, password=b"another"), 0)
    result, _ = run(store, version=5)
    assert isinstance(result, NoSuchLedgerError)
    assert store.writes == 1, "versions began again: a later write could be taken for the next"


def test_a_server_that_lags_is_waited_for() -> None:
    store = Store()
    found = [Versioned(OPEN, 4)] * 3

    async def read_ledger(ledger_id: LedgerId) -> Versioned[LedgerMetadata]:
        return found.pop() if found else store.current

    store.read_ledger = read_ledger  # type: ignore[method-assign]
    store.current = Versioned(attrs.evolve(OPEN, custom={"n": b"1"}), 6)
    result, local = run(store, version=5)
    assert result == as_in_recovery(attrs.evolve(OPEN, custom={"n": b"1"}))
    assert local == store.current
    assert store.writes == 2


def test_local_metadata_never_goes_back() -> None:
    local = LocalMetadata(Versioned(OPEN, 4))
    seen: list[LedgerMetadata] = []
    local.on_change(seen.append)
    local.install(Versioned(as_in_recovery(OPEN), 4))
    local.install(Versioned(as_in_recovery(OPEN), 3))
    assert local.value is OPEN
    local.install(Versioned(as_in_recovery(OPEN), 5))
    assert local.value == as_in_recovery(OPEN)
    assert seen == [as_in_recovery(OPEN)]


def test_a_new_ensemble_replaces_a_fragment_that_begins_there_or_follows() -> None:
    same = with_ensemble(OPEN, 0, OTHERS)
    assert same.fragments == (Fragment(EntryId(0), OTHERS),)
    later = with_ensemble(OPEN, 5, OTHERS)
    assert later.fragments == (*OPEN.fragments, Fragment(EntryId(5), OTHERS))
    with pytest.raises(UnexpectedConditionError):
        with_ensemble(later, 4, BOOKIES)


def test_whether_a_failed_bookie_is_still_there() -> None:
    assert lists_a_failed_bookie(OPEN, [(1, BOOKIES[1])])
    assert not lists_a_failed_bookie(OPEN, [(1, BOOKIES[0]), (0, OTHERS[0])])
    with pytest.raises(ClientLedgerFencedError):
        lists_a_failed_bookie(as_in_recovery(OPEN), [])
    with pytest.raises(LedgerClosedError):
        lists_a_failed_bookie(as_closed(OPEN, 3, 30), [])


def test_when_a_writer_may_close() -> None:
    assert writer_may_close(OPEN, 3, 30)
    assert not writer_may_close(as_closed(OPEN, 3, 30), 3, 30)
    for last, length in ((2, 30), (3, 31)):
        with pytest.raises(MetadataVersionError):
            writer_may_close(as_closed(OPEN, 3, 30), last, length)
    with pytest.raises(ClientLedgerFencedError):
        writer_may_close(as_in_recovery(OPEN), 3, 30)


def test_a_recovery_closes_with_its_fragments() -> None:
    fragments = [Fragment(EntryId(0), OTHERS), Fragment(EntryId(4), BOOKIES)]
    result = as_recovered(as_in_recovery(OPEN), fragments, 6, 60)
    assert result.fragments == tuple(fragments)
    assert (result.state, result.last_entry_id, result.length) == (LedgerState.CLOSED, 6, 60)
