"""Scenarios of client.md 16.3 on real bookies: what they do with their disks decides these.

Those that are about clients alone are in ``tests/bkclient``; ``test_catalogue`` knows all.
"""

from __future__ import annotations

import pytest

from bkclient.errors import (
    ClientError,
    ClientLedgerFencedError,
    DuplicateEntryIdError,
    NotEnoughBookiesError,
    WriteFailedError,
)
from bkclient.metadata.versions_and_watches import ANY
from tests.sim.engine.scene import (
    Scene,
    add,
    add_answer,
    at,
    fence,
    fence_answer,
    of,
    recovery_add,
    recovery_read_answer,
)
from tests.sim.world.bookie import SimBookie
from tests.sim.world.disk import SimFiles
from tests.sim.world.network import Fate, packets_of
from wire.codes import LedgerState, ProtocolVersion
from wire.ids import BookieId, EntryId

PROTOCOLS = pytest.mark.parametrize("protocol", list(ProtocolVersion), ids=lambda p: p.name)


@PROTOCOLS
def test_s1_a_recovery_read_fences_whom_the_fence_did_not_reach(protocol: ProtocolVersion) -> None:
    scene = Scene(3)
    w, r = scene.client("w", protocol=protocol), scene.client("r", protocol=protocol)
    writer = scene.writer(w)
    first, second, third = scene.members(writer)
    scene.when(at(first, add), Fate.HOLD)
    scene.when(at(third, add), Fate.HOLD)
    added = scene.add(writer)
    scene.drive(0.5)
    scene.when(at(third, of(r, fence)), Fate.CUT)
    first.turn_s = lambda: 0.2  # So that there is a new connection to the third before the reads.
    scene.when(at(second, recovery_read_answer), Fate.HOLD)
    opened = scene.opening(r, writer)
    scene.drive(4)
    assert opened[0].last_add_confirmed == -1
    scene.release()
    scene.drive(30)
    assert isinstance(added[0], ClientLedgerFencedError)
    scene.finish(r, opened[0])


def test_s3_a_recoverer_that_dies_while_it_replaces_bookies_hides_no_entry() -> None:
    scene = Scene(5)
    w, r1, r2 = scene.client("w"), scene.client("r1"), scene.client("r2")
    writer = scene.writer(w)
    scene.when(at(scene.members(writer)[2], add), Fate.HOLD)
    added = scene.add(writer)
    scene.drive(1)
    assert added == [0]
    # The first recoverer gets nothing written back, wherever it tries.
    scene.when(of(r1, recovery_add), Fate.HOLD)
    scene.opening(r1, writer)
    scene.drive(20)
    r1.kill()
    scene.release()
    scene.open(r2, writer)


def test_s4_a_slow_recoverer_does_not_read_from_bookies_of_its_own() -> None:
    scene = Scene(5)
    w, r1, r2 = scene.client("w"), scene.client("r1"), scene.client("r2")
    writer = scene.writer(w)
    third = scene.members(writer)[2]
    for number in range(6):
        scene.add(writer, b"%d" % number)
    scene.drive(1)
    scene.when(at(third, of(r1, recovery_add)), Fate.CUT)
    seen = scene.seen(of(r1, recovery_add))
    opened = scene.opening(r1, writer)
    names = {bookie.name for bookie in scene.members(writer)}
    scene.world.drive(10, lambda: {message.bookie for message in seen} - names)
    r1.process.pause()
    reader = scene.open(r2, writer)
    r1.process.resume()
    scene.drive(30)
    assert reader.last_add_confirmed == opened[0].last_add_confirmed == 5


def test_s8_a_late_answer_of_a_bookie_that_was_replaced_counts_for_nothing() -> None:
    scene = Scene(4)
    w = scene.client("w", add_timeout_s=1)
    writer = scene.writer(w, ack_quorum=3)
    first = scene.members(writer)[0]
    scene.when(at(first, add_answer), Fate.HOLD)
    scene.world.metadata.delay_s = lambda operation: 2.0 if operation.writes else 0.0
    added = scene.add(writer)
    scene.drive(2)
    scene.release()  # While the ensemble changes.
    scene.drive(0.5)
    assert added == []
    scene.drive(30)
    assert first.name not in writer.metadata.last_fragment.ensemble
    assert added == [0]
    scene.open(scene.client("r"), writer)


@PROTOCOLS
@pytest.mark.parametrize("how_soon_s", [0.0, 0.00002, 0.001, 0.5])
def test_s9_a_fence_that_was_answered_outlives_its_bookie(
    protocol: ProtocolVersion, how_soon_s: float
) -> None:
    scene = Scene(3)
    w, r = scene.client("w", protocol=protocol), scene.client("r")
    writer = scene.writer(w)
    bookies = scene.members(writer)
    answered: list[str] = []

    def dies(message: object) -> bool:
        name = message.bookie  # type: ignore[attr-defined]
        if fence_answer(message) and name not in answered:  # type: ignore[arg-type]
            answered.append(name)
            scene.world.clock.callLater(how_soon_s, scene.world[name].stay_away, power=True)
        return False

    for bookie in bookies:
        bookie.turn_s = lambda: 0.0001
    scene.world.network.policy = lambda message: Fate.CUT if dies(message) else Fate.PASS
    r_opens = scene.opening(r, writer)
    scene.drive(5)
    for bookie in bookies:
        bookie.start()
    scene.world.until_serving()
    added = scene.add(writer)
    scene.drive(60)
    assert isinstance(added[0], ClientLedgerFencedError)
    scene.open(scene.client("r2"), writer)
    assert r_opens


def test_s10_a_bookie_that_has_lost_its_disk_does_not_come_back() -> None:
    scene = Scene(3)
    w, r = scene.client("w"), scene.client("r")
    writer = scene.writer(w)
    added = scene.add(writer)
    scene.drive(1)
    assert added == [0]
    scene.open(r, writer)
    bookie = scene.members(writer)[0]
    bookie.stay_away(power=True)
    bookie.files = SimFiles(bookie.rng)
    bookie.make_roots()
    scene.drive(15)
    bookie.start()
    scene.drive(5)
    assert not bookie.is_serving
    assert "cookie" in str(bookie.last_error).lower()
    added = scene.add(writer)
    scene.drive(60)
    assert isinstance(added[0], ClientError)


def test_s10_fresh_bookies_under_old_ids_know_which_ledgers_were_fenced() -> None:
    """Their cookies were deleted, so nothing keeps them from starting (#4812)."""
    scene = Scene(3)
    w, r = scene.client("w"), scene.client("r")
    writer = scene.writer(w)
    scene.open(r, writer)
    for bookie in scene.members(writer):
        bookie.stay_away(power=True)
        bookie.files = SimFiles(bookie.rng)
        bookie.make_roots()
    scene.drive(15)
    for bookie in scene.members(writer):
        scene.world.run(w.begin(w.store.remove_cookie(BookieId(bookie.name), ANY)))
        bookie.start()
    scene.drive(15)
    assert all(bookie.is_serving for bookie in scene.members(writer))
    added = scene.add(writer)
    scene.drive(60)
    assert isinstance(added[0], ClientLedgerFencedError)


def test_s12_an_add_that_meets_a_fence_on_its_way_to_the_disk_is_refused() -> None:
    scene = Scene(3)
    w, r = scene.client("w"), scene.client("r")
    writer = scene.writer(w)
    for bookie in scene.members(writer):
        bookie.turn_s = lambda: 0.3
    opened = scene.opening(r, writer)
    scene.drive(0.1)
    added = scene.add(writer)
    scene.drive(60)
    assert isinstance(added[0], ClientLedgerFencedError)
    assert opened[0].last_add_confirmed == -1
    scene.finish(r, opened[0])


def test_s12_an_add_on_its_way_to_the_disk_is_found_by_the_recovery() -> None:
    scene = Scene(3)
    w, r = scene.client("w"), scene.client("r")
    writer = scene.writer(w)
    for bookie in scene.members(writer):
        bookie.turn_s = lambda: 0.3
    added = scene.add(writer)
    scene.drive(0.1)
    reader = scene.open(r, writer)
    assert reader.last_add_confirmed == 0
    scene.drive(60)
    assert len(added) == 1


def test_s13_a_bookie_that_hangs_has_not_said_that_it_has_nothing() -> None:
    require_that_no_answer_proves_nothing(Fate.HOLD)


def test_s11_a_connection_that_is_lost_has_not_said_that_there_is_nothing() -> None:
    require_that_no_answer_proves_nothing(Fate.CUT)


def require_that_no_answer_proves_nothing(fate: Fate) -> None:
    """Let those who have an entry not answer a recovery's reads; who has it not says so."""
    scene = Scene(3)
    w, r = scene.client("w"), scene.client("r")
    writer = scene.writer(w)
    first, second, third = scene.members(writer)
    scene.when(at(third, add), Fate.HOLD)
    added = scene.add(writer)
    scene.drive(1)
    assert added == [0]
    for bookie in (first, second):
        scene.when(at(bookie, of(r, recovery_read_answer)), fate)
    opened = scene.opening(r, writer)
    scene.drive(60)
    assert isinstance(opened[0], ClientError)
    scene.release()
    scene.open(r, writer)


@pytest.mark.parametrize("restarts", [False, True])
def test_s35_a_ledger_that_was_fenced_and_collected_is_not_made_anew(*, restarts: bool) -> None:
    scene = Scene(3)
    w, r = scene.client("w"), scene.client("r")
    writer = scene.writer(w)
    scene.add(writer)
    scene.drive(1)
    scene.open(r, writer)
    scene.world.run(r.begin(r.client.delete_ledger(writer.ledger_id)))
    bookies = scene.members(writer)
    for bookie in bookies:
        assert bookie.service is not None
        assert bookie.service.background.collectors is not None
        bookie.process.run(bookie.service.background.collectors.collect)  # type: ignore[union-attr]
    scene.drive(10)
    assert not any(bookie.held(writer.ledger_id) for bookie in bookies)
    if restarts:
        for bookie in bookies:
            bookie.stay_away(power=True)
        scene.drive(15)
        for bookie in bookies:
            bookie.start()
        scene.world.until_serving()
    added = scene.add(writer)
    scene.drive(60)
    assert isinstance(added[0], ClientError)


def test_s38_ids_of_the_callers_choice_are_confirmed_without_a_gap() -> None:
    scene = Scene(3)
    w = scene.client("w")
    writer = scene.writer(w, explicit_ids=True)
    second, third = scene.add_at(writer, EntryId(1)), scene.add_at(writer, EntryId(3))
    scene.drive(1)
    assert second == third == []
    assert isinstance(_error_of(writer.add_at(EntryId(1), b"again")), DuplicateEntryIdError)
    first = scene.add_at(writer, EntryId(0))
    scene.drive(1)
    assert (first, second, third) == ([0], [1], [])
    huge = scene.add_at(writer, EntryId(2**62))
    scene.drive(60)
    assert isinstance(huge[0], ClientError)
    reader = scene.open(scene.client("r"), writer)
    assert reader.last_add_confirmed == 1


def test_s39_what_was_not_forced_is_never_told_to_be_safe() -> None:
    scene = Scene(3)
    w, r = scene.client("w"), scene.client("r")
    writer = scene.writer(w, deferred_sync=True)
    for number in range(3):
        scene.add(writer, b"%d" % number)
    scene.drive(1)
    forced = scene.world.run(w.begin(writer.force()))
    scene.oracle.forced(writer.ledger_id, forced)
    for number in range(3):
        scene.add(writer, b"later %d" % number)
    scene.drive(0.01)
    assert writer.last_add_confirmed == 2
    for bookie in scene.members(writer):
        bookie.stay_away(power=True)
    scene.drive(15)
    for bookie in scene.members(writer):
        bookie.start()
    scene.world.until_serving()
    with pytest.raises(ClientError):
        scene.world.run(w.begin(writer.force()))
    # On the new connections every bookie would say that all it has is on its disk.
    with pytest.raises(WriteFailedError, match="may be lost"):
        scene.world.run(w.begin(writer.force()))
    assert writer.last_add_confirmed == 2
    assert scene.open(r, writer).last_add_confirmed >= 2


def test_s39_a_force_needs_every_bookie() -> None:
    scene = Scene(3)
    w = scene.client("w")
    writer = scene.writer(w, deferred_sync=True)
    scene.add(writer)
    scene.drive(1)
    scene.members(writer)[1].stay_away(power=False)
    with pytest.raises(ClientError):
        scene.world.run(w.begin(writer.force()))
    assert writer.last_add_confirmed == -1


def test_i12_nobody_is_fenced_while_the_mark_is_on_its_way() -> None:
    scene = Scene(3)
    writer = scene.writer(scene.client("w"))
    scene.add(writer)
    scene.drive(1)
    scene.world.metadata.delay_s = lambda operation: 3.0 if operation.writes else 0.0
    reader = scene.open(scene.client("r"), writer)
    stored = scene.oracle.ledger(writer.ledger_id).stored
    assert stored is not None
    assert stored.state is LedgerState.CLOSED
    assert reader.last_add_confirmed == 0


@PROTOCOLS
def test_a_half_open_connection_is_made_anew(protocol: ProtocolVersion) -> None:
    """Nobody can take the place of who is behind it, so its writers wait for that."""
    scene = Scene(3)
    w = scene.client("w", protocol=protocol, add_timeout_s=2, read_timeout_s=2)
    first = scene.writer(w, ack_quorum=3)
    scene.add(first)
    scene.drive(1)
    victim = scene.members(first)[1].name
    scene.world.network.forget_links(victim)
    began_s, outcomes = scene.world.clock.elapsed_s, list[object]()
    for _ in range(3):
        added = scene.add(writer := scene.writer(w, ack_quorum=3))
        scene.world.drive(10, lambda: added)  # noqa: B023 -- called in this turn only.
        outcomes += added
    assert [type(one) for one in outcomes] == [NotEnoughBookiesError, NotEnoughBookiesError, int]
    assert scene.world.clock.elapsed_s - began_s < 4.5, "two time-outs"
    for one in (first, writer):
        scene.open(scene.client(f"r{one.ledger_id}", protocol=protocol), one)


def test_a_bookie_whose_disk_is_slow_keeps_its_connections() -> None:
    scene = Scene(3)
    w = scene.client("w", add_timeout_s=1, read_timeout_s=1)
    slow = scene.members(first := scene.writer(w))[0]
    scene.add(first)
    scene.drive(1)
    links = set(scene.world.network.links_of(slow.name))
    slow.turn_s = lambda: 0.5
    failed = 0
    for _ in range(8):
        added = scene.add(scene.writer(w, ack_quorum=3))
        scene.world.drive(10, lambda: added)  # noqa: B023 -- called in this turn only.
        failed += isinstance(added[0], ClientError)
    assert failed >= 4
    assert {link for link in links if not link.is_cut} == links


def _error_of(added: object) -> object:
    found: list[object] = []
    added.addErrback(lambda failure: found.append(failure.value))  # type: ignore[attr-defined]
    return found[0]


def test_s16_a_damaged_lac_is_no_answer() -> None:
    scene = Scene(3)
    w, r = scene.client("w"), scene.client("r")
    writer = scene.writer(w)
    for _ in range(3):
        scene.add(writer)
        scene.drive(0.5)

    async def ask_often() -> None:
        reader = await r.client.open_ledger(writer.ledger_id, recover=False)
        scene.when(at(scene.members(writer)[0], of(r, lambda m: bool(packets_of(m)))), Fate.DAMAGE)
        for _ in range(40):
            scene.oracle.learned_lac(writer.ledger_id, -1, await reader.read_last_confirmed())

    scene.world.run(r.begin(ask_often()))
    scene.oracle.raise_broken()


def test_an_entry_that_its_whole_write_set_stores_may_still_vanish() -> None:
    """So a reader that does not fence must not count replicas: only a LAC says what is confirmed.

    The bookies have stored the entry, but the writer gets no answer. It replaces them from this
    entry on, which is its right, and ends before the new ones have the entry.
    """
    scene = Scene(6)
    w, r = scene.client("w", add_timeout_s=1), scene.client("r")
    writer = scene.writer(w)
    before = scene.members(writer)
    scene.when(lambda message: message.client == "w" and add_answer(message), Fate.HOLD)
    added = scene.add(writer)
    scene.drive(0.5)
    scene.when(lambda message: add(message) and message.bookie not in named(before), Fate.HOLD)
    assert all(0 in bookie.held(writer.ledger_id) for bookie in before)
    reading = r.client.open_ledger(writer.ledger_id, recover=False)
    reader = scene.world.run(r.begin(reading))
    assert reader.last_add_confirmed == -1
    shown = scene.world.run(r.begin(reader.read_entry(0, unconfirmed=True)))
    assert shown.payload == b"entry"
    scene.world.drive(10, lambda: not named(before) & named(scene.members(writer)))
    w.kill()
    assert added == []
    assert scene.open(r, writer).last_add_confirmed == -1


def named(bookies: list[SimBookie]) -> set[str]:
    return {bookie.name for bookie in bookies}
