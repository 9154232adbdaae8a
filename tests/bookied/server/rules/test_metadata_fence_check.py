"""Adds to ledgers whose fence another program may have lost: metadata decides."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from bkclient.errors import MetadataSerializationError, NoSuchLedgerError
from bkclient.metadata.errors import MetadataUnavailableError
from bkclient.metadata.versions_and_watches import Versioned
from bookied.server.rules import metadata_fence_check as module
from bookied.server.rules.metadata_fence_check import ASK_S, LATE_S, PAUSE_S, FenceCheck, FenceState
from tests.bkclient.metadata.values import metadata
from tests.bookied.worlds.served_bookie import KEY, WRONG_KEY, Serving, packet
from tests.support.stored_entries import stored_entries
from wire.codes import AddFlag, LedgerState, ProtocolVersion, ReadFlag, ReturnCode
from wire.ids import EntryId, LedgerId
from wire.ledger_metadata import LedgerMetadata
from wire.messages import AddRequest, ReadRequest

OPEN, CLOSED, UNKNOWN = FenceState.OPEN, FenceState.CLOSED, FenceState.UNKNOWN
L7, L8 = LedgerId(7), LedgerId(8)
LAST = 1000


class Store:
    """Metadata that answers when told to."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.answers: dict[int, Deferred[Versioned[LedgerMetadata]]] = {}

    async def read_ledger(self, ledger_id: LedgerId) -> Versioned[LedgerMetadata]:
        self.asked.append(ledger_id)
        self.answers[ledger_id] = Deferred()
        return await self.answers[ledger_id]

    def say(self, ledger_id: int, state: LedgerState) -> None:
        closed = {"last_entry_id": EntryId(0), "length": 5} if state is LedgerState.CLOSED else {}
        found = attrs.evolve(metadata(), state=state, **closed)
        self.answers.pop(ledger_id).callback(Versioned(found, 1))

    def fail(self, ledger_id: int, error: Exception) -> None:
        self.answers.pop(ledger_id).errback(error)


class Desk:
    def __init__(self) -> None:
        self.clock, self.store = Clock(), Store()
        self.check = FenceCheck(self.store, self.clock, last=LAST)  # type: ignore[arg-type]
        self.known: list[tuple[int, FenceState]] = []

    def ask(self, ledger_id: LedgerId) -> None:
        self.check.ask(ledger_id, lambda standing: self.known.append((ledger_id, standing)))


@pytest.mark.parametrize(
    ("state", "standing"),
    [
        (LedgerState.OPEN, OPEN),
        (LedgerState.IN_RECOVERY, CLOSED),
        (LedgerState.CLOSED, CLOSED),
    ],
)
def test_a_ledgers_state_is_what_metadata_says(state, standing) -> None:
    desk = Desk()
    desk.ask(L7)
    assert desk.known == []
    desk.store.say(7, state)
    assert desk.known == [(7, standing)]
    assert desk.check.is_open(7) is (standing is OPEN)


def test_no_fence_of_a_later_ledger_can_have_been_lost() -> None:
    desk = Desk()
    assert [desk.check.is_open(ledger_id) for ledger_id in (LAST, LAST + 1)] == [False, True]


def test_all_who_wait_for_one_ledger_hear_the_one_answer_in_order() -> None:
    desk = Desk()
    for ledger_id in (L7, L8, L7, L7):
        desk.ask(ledger_id)
    assert desk.store.asked == [7, 8]
    desk.store.say(7, LedgerState.OPEN)
    assert desk.known == [(7, OPEN)] * 3


def test_a_ledger_that_was_deleted_counts_as_open() -> None:
    desk = Desk()
    desk.ask(L7)
    desk.store.fail(7, NoSuchLedgerError("ledger 7"))
    assert desk.known == [(7, OPEN)]


def test_an_outage_is_no_answer_and_is_asked_about_again_after_a_pause() -> None:
    desk = Desk()
    desk.ask(L7)
    desk.store.fail(7, MetadataUnavailableError("away"))
    desk.ask(L8)
    assert desk.known == [(7, UNKNOWN), (8, UNKNOWN)]
    assert desk.store.asked == [7]
    desk.clock.advance(PAUSE_S)
    desk.ask(L7)
    desk.store.say(7, LedgerState.OPEN)
    assert desk.known[2:] == [(7, OPEN)]


def test_metadata_of_one_ledger_that_cannot_be_read_says_nothing_of_others() -> None:
    desk = Desk()
    desk.ask(L7)
    desk.store.fail(7, MetadataSerializationError("ledger 7"))
    desk.ask(L8)
    desk.store.say(8, LedgerState.OPEN)
    assert desk.known == [(7, UNKNOWN), (8, OPEN)]


def test_an_error_that_nobody_expects_is_no_answer_either() -> None:
    desk = Desk()
    desk.ask(L7)
    desk.store.fail(7, RuntimeError("a driver's bug"))
    assert desk.known == [(7, UNKNOWN)]
    desk.ask(L7)
    desk.store.say(7, LedgerState.OPEN)
    assert desk.known == [(7, UNKNOWN), (7, OPEN)]


def test_one_who_fails_over_an_answer_keeps_nobody_else_from_it() -> None:
    desk = Desk()

    def fail(_standing: FenceState) -> None:
        raise RuntimeError("a bug")

    desk.check.ask(L7, fail)
    desk.ask(L7)
    desk.store.say(7, LedgerState.OPEN)
    assert desk.known == [(7, OPEN)]


def test_a_service_that_does_not_answer_is_not_waited_for() -> None:
    desk = Desk()
    desk.ask(L7)
    desk.clock.advance(ASK_S)
    assert desk.known == [(7, UNKNOWN)]


def test_while_the_bookie_stood_still_nobody_could_answer_it() -> None:
    desk = Desk()
    desk.ask(L7)
    desk.clock.advance(ASK_S + 2 * LATE_S)
    assert desk.known == []
    desk.store.say(7, LedgerState.OPEN)
    desk.ask(L8)
    for _ in range(2):  # It is no reason to wait for a service that does not answer.
        desk.clock.advance(ASK_S / 2)
    assert desk.known == [(7, OPEN), (8, UNKNOWN)]
    assert desk.store.asked == [7, 7, 8]


def test_only_so_many_ledgers_are_remembered(monkeypatch) -> None:
    monkeypatch.setattr(module, "LEDGERS_MAX", 2)
    desk = Desk()
    for ledger_id in (1, 2, 3):
        desk.ask(LedgerId(ledger_id))
        desk.store.say(ledger_id, LedgerState.OPEN)
    assert [desk.check.is_open(ledger_id) for ledger_id in (1, 2, 3)] == [False, True, True]


# A bookie that asks ------------------------------------------------------------------------------


class Doubtful:
    """A bookie with one ledger on disk, whose fence may have been lost."""

    def __init__(self, directory: Path) -> None:
        first = Serving(directory)
        first.connect().ask(add(7, 0))
        first.flush()
        first.close()
        self.store = Store()
        self.serving = Serving(
            directory,
            fence_check=FenceCheck(self.store, first.clock, last=LAST),  # type: ignore[arg-type]
        )
        self.client = self.serving.connect()

    def request(self, request: Any) -> list[Any]:
        """Return the answers there are now."""
        self.client.request(request)
        return self.client.answers()

    def then(self) -> list[ReturnCode]:
        self.serving.sync()
        return [answer.rc for answer in self.client.answers()]


@pytest.fixture
def doubtful(tmp_path: Path) -> Doubtful:
    return Doubtful(tmp_path)


def add(ledger_id: int, entry_id: int, key: bytes = KEY, flags: AddFlag = AddFlag.NONE) -> Any:
    entry = packet(ledger_id, entry_id)
    return AddRequest(LedgerId(ledger_id), EntryId(entry_id), key, entry, flags)


@pytest.mark.parametrize("state", [LedgerState.CLOSED, LedgerState.IN_RECOVERY])
def test_a_lost_fence_is_made_good_before_the_first_add(doubtful: Doubtful, state) -> None:
    assert doubtful.request(add(7, 1)) == []
    doubtful.store.say(7, state)
    assert doubtful.then() == [ReturnCode.EFENCED]
    held = doubtful.serving.storage.ledgers.lookup(7)
    assert held is not None
    assert held.fenced
    assert stored_entries(doubtful.serving.storage, 7) == [0]
    assert [one.rc for one in doubtful.request(add(7, 1))] == [ReturnCode.EFENCED]
    assert doubtful.store.asked == [7]


def test_adds_to_an_open_ledger_wait_for_one_answer_and_keep_their_order(
    doubtful: Doubtful,
) -> None:
    for entry_id in (1, 2, 3):
        assert doubtful.request(add(7, entry_id)) == []
    doubtful.store.say(7, LedgerState.OPEN)
    assert doubtful.then() == [ReturnCode.EOK] * 3
    assert [one.rc for one in doubtful.request(add(7, 4))] == [ReturnCode.EOK]
    assert doubtful.store.asked == [7]
    assert stored_entries(doubtful.serving.storage, 7) == [0, 1, 2, 3, 4]


def test_an_outage_refuses_adds_rather_than_guess(doubtful: Doubtful) -> None:
    assert doubtful.request(add(7, 1)) == []
    doubtful.store.fail(7, MetadataUnavailableError("away"))
    assert doubtful.then() == [ReturnCode.ETOOMANYREQUESTS]
    assert stored_entries(doubtful.serving.storage, 7) == [0]


def test_a_ledger_that_is_new_here_is_asked_about_too(doubtful: Doubtful) -> None:
    """Java loses the fence of a ledger it has not stored (D1)."""
    assert doubtful.request(add(8, 0)) == []
    doubtful.store.say(8, LedgerState.CLOSED)
    assert doubtful.then() == [ReturnCode.EFENCED]


def test_recovery_adds_reads_and_wrong_keys_are_answered_without_asking(doubtful: Doubtful) -> None:
    assert [one.rc for one in doubtful.request(add(7, 1, WRONG_KEY))] == [ReturnCode.EUA]
    recovery = AddFlag.RECOVERY
    assert [one.rc for one in doubtful.request(add(7, 1, flags=recovery))] == [ReturnCode.EOK]
    fencing = ReadRequest(L7, EntryId(1), ReadFlag.FENCE, KEY)
    assert [one.rc for one in doubtful.request(fencing)] == [ReturnCode.EOK]
    assert [one.rc for one in doubtful.request(add(7, 2))] == [ReturnCode.EFENCED]
    assert doubtful.store.asked == []


def test_adds_over_v3_are_asked_about_too(doubtful: Doubtful) -> None:
    client = doubtful.serving.connect(ProtocolVersion.V3)
    client.request(add(7, 1))
    assert client.answers() == []
    doubtful.store.say(7, LedgerState.CLOSED)
    doubtful.serving.sync()
    assert [one.rc for one in client.answers()] == [ReturnCode.EFENCED]
