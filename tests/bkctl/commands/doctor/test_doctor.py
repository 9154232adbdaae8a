"""The doctor on clusters in memory: a test for each trouble of real operators that it can see.

The numbers are those of commands.md, section 7. What it cannot see is answered elsewhere: 9, 12 and
25's slow bookies by metrics, 19 by the commands that exist, 22 by the application's own lists.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import attrs
import pytest

from bkclient.blocking import with_store
from bkclient.config.findings import Severity
from bkclient.log import LogManager
from bkclient.metadata import zk_paths
from bkclient.metadata.versions_and_watches import NEW, HeldLock, StoredLedger, Versioned
from bkclient.replication.autorecovery_admin import Mark, Pause
from bkctl.bookies.rack_losses import REMEMBERED_MAX
from bkctl.cli.root import cli
from bkctl.commands.doctor.columns import ClusterFinding
from bkctl.commands.doctor.rules.diagnosis import diagnose
from bkctl.commands.doctor.survey_values import (
    ENDS_READ_MAX,
    ClusterSurvey,
    DoctorLimits,
    LedgerCensus,
)
from bkctl.exit_status import ExitStatus
from bkctl.output.views import view_of
from tests.bkclient.metadata.values import metadata
from tests.bkclient.replication_world import closed_ledger
from tests.bkclient.worlds import FakeLedger, Fate, Ruling, World
from tests.bkctl.support.runner import Result
from tests.bkctl.support.world import run_in
from tests.support.memory_zookeeper import MemoryMetadata
from wire import digest
from wire.codes import LedgerState, ReturnCode
from wire.ids import LEDGER_ID_REFUSED, BookieId, EntryId, LedgerId
from wire.ledger_metadata import Fragment, LedgerMetadata
from wire.messages import (
    BookieInfoRequest,
    BookieInfoResponse,
    ReadRequest,
    ReadResponse,
    Request,
)
from wire.records.cookie import Cookie, encode_cookie

A, B, C, D = (BookieId(f"b{n}") for n in (1, 2, 3, 4))
CLUSTER = "00000000-0000-4000-8000-000000000000"
DAY_S = 86_400


class Patient:
    """A cluster that was healthy: bookies with cookies, and an auditor."""

    def __init__(self, bookies: int = 4) -> None:
        self.world = World(bookies)
        self.world.clock.advance(time.time())
        self.store: MemoryMetadata = self.world.metadata.metadata()
        self.world.run(self.store.connect())
        self.world.run(self.store.elect(A))
        self.world.run(self.store.set_lost_bookie_recovery_delay(0))
        for bookie_id in self.world.bookies:
            self.cookie(bookie_id)

    def cookie(self, bookie_id: str, cluster: str = CLUSTER) -> None:
        text = encode_cookie(Cookie(bookie_id, "/j", ("/l",), None, cluster))
        self.world.run(self.store.write_cookie(BookieId(bookie_id), text, NEW))

    def ledger(
        self,
        ledger_id: int,
        *ensemble: BookieId,
        state: LedgerState = LedgerState.CLOSED,
        entries: int = 10,
        age_s: float = 60.0,
        write_quorum: int | None = None,
        **changes: Any,
    ) -> None:
        is_closed = state is LedgerState.CLOSED
        quorum = write_quorum or len(ensemble)
        made: LedgerMetadata = metadata(
            ensemble_size=len(ensemble),
            write_quorum=quorum,
            ack_quorum=min(quorum, 2),
            fragments=(Fragment(EntryId(0), ensemble),),
            state=state,
            last_entry_id=EntryId(entries - 1) if is_closed else None,
            length=entries if is_closed else 0,
            ctime_ms=int((time.time() - age_s) * 1000),
            store_ctime=True,
            **changes,
        )
        self.world.run(self.store.create_ledger(LedgerId(ledger_id), made))
        if is_closed and entries:
            self.store_ends(LedgerId(ledger_id), made)

    def store_ends(self, ledger_id: LedgerId, made: LedgerMetadata) -> None:
        """Give the first and the last entry of a ledger to all its bookies."""
        assert made.digest_type is not None
        assert made.password is not None
        assert made.last_entry_id is not None
        digester = digest.digester(made.digest_type, made.password)
        for bookie_id in set(made.ensemble) & self.world.bookies.keys():
            held = FakeLedger(digest.master_key(made.password))
            for entry_id in {0, made.last_entry_id}:
                lac, length = entry_id - 1, entry_id + 1
                held.entries[entry_id] = digester.package(ledger_id, entry_id, lac, length, b"x")
            self.world.bookies[bookie_id].ledgers[ledger_id] = held

    def mark(self, ledger_id: int, *missing: BookieId, age_s: float = 0.0) -> None:
        path = f"ledger {ledger_id}"
        self.world.run(self.store.mark_underreplicated(LedgerId(ledger_id), missing))
        if age_s:
            (path,) = [p for p in self.dump() if p.endswith(f"urL{ledger_id:010d}")]
            since = f"ctime: {int((time.time() - age_s) * 1000)}\n"
            text = "".join(f'replica: "{one}"\n' for one in missing) + since
            self.world.metadata.set(path, text.encode())

    def dump(self) -> dict[str, Any]:
        return self.world.run(self.store.dump())

    def doctor(self, *options: str) -> Result:
        before = self.dump()
        result = run_in(self.world, "doctor", *options, ok=False)
        assert self.dump() == before, "a doctor only looks"
        return result

    def findings(self, *options: str) -> dict[str, dict[str, Any]]:
        result = self.doctor("--json", *options)
        assert result.status in {0, 9, 10}, result
        listed = json.loads(result.out)["findings"]
        dangers = [one.value for one in Severity]
        order = [dangers.index(one["danger"]) for one in listed]
        assert order == sorted(order), "the worst comes first"
        worst = min(order, default=len(dangers))
        assert result.status == {0: 10, 1: 10, 2: 9}.get(worst, 0)
        return {one["name"]: one for one in listed}


@pytest.fixture
def patient() -> Patient:
    return Patient()


def test_a_healthy_cluster_is_well(patient: Patient) -> None:
    patient.ledger(1, A, B, C)
    patient.ledger(2, A, B, state=LedgerState.OPEN)
    result = patient.doctor()
    assert (result.status, result.out) == (0, "")
    assert "looked at 4 bookies and 2 ledgers" in result.err
    assert (
        "no problem found. Only the first and last entries of 1 ledger were read; `bkctl"
        in result.err
    )


def test_a_ledger_without_a_mark_that_lost_its_entries_is_a_loss(patient: Patient) -> None:
    for ledger_id in (1, 2, 3):
        patient.ledger(ledger_id, A, B, C)
    patient.ledger(4, A, B, C, entries=0)
    for bookie in patient.world.bookies.values():
        bookie.ledgers.pop(2, None)
    result = patient.doctor()
    assert result.status == 10
    assert "no problem found" not in result.err
    assert "Only the first and last entries of " in result.err
    assert "`bkctl ledger verify --all` reads all entries and finds lost ones" in result.err
    lost = patient.findings()["ledgers-lost"]
    assert (lost["danger"], lost["examples"]) == ("loss", ["2"])


@pytest.mark.parametrize("kind", ["missing", "damaged", "unreadable"])
def test_one_bad_copy_of_a_first_or_last_entry_is_a_risk(patient: Patient, kind: str) -> None:
    for ledger_id in (1, 2, 3):
        patient.ledger(ledger_id, A, B, C)
    copies = patient.world.bookies[B].ledgers[LedgerId(2)].entries
    if kind == "missing":
        del copies[EntryId(0)]
    elif kind == "damaged":
        copies[EntryId(9)] = copies[EntryId(9)][:-1] + b"y"
    else:
        patient.world.bookies[B].policy = lambda request: (
            ReadResponse(ReturnCode.EIO, request.ledger_id, request.entry_id)
            if isinstance(request, ReadRequest) and request.ledger_id == 2
            else Fate.SERVE
        )
    found = patient.findings()["ledgers-bad-copies"]
    assert (found["danger"], found["examples"]) == ("risk", ["2"])
    assert found["fix"].startswith("bkctl ledger verify 2,")


def test_a_finding_about_one_ledger_begins_with_its_id(patient: Patient) -> None:
    patient.ledger(1, A, B, C)
    del patient.world.bookies[B].ledgers[LedgerId(1)].entries[EntryId(0)]
    assert "risk     ledger 1 has copies of a first or last entry" in patient.doctor().out


def test_a_bookie_that_does_not_answer_is_no_finding_about_copies(patient: Patient) -> None:
    patient.ledger(1, A, B, C)
    patient.world.bookies[B].policy = lambda request: (
        Fate.LOSE if isinstance(request, ReadRequest) else Fate.SERVE
    )
    assert "ledgers-bad-copies" not in patient.findings()


def test_a_log_that_lost_a_ledger_is_a_loss(patient: Patient) -> None:
    world = patient.world
    for name in ("whole", "holed", "trimmed"):
        run_in(world, "log", "create", name)
        for word in ("a", "b", "c"):
            run_in(world, "log", "append", name, word)
    assert "logs-damaged" not in patient.findings()
    info = world.run(LogManager(world.client()).info("holed"))
    world.run(world.client().delete_ledger(info.ledgers[1].ledger_id))
    run_in(world, "log", "trim", "trimmed", "--before", "2:0", "--yes")
    found = patient.findings()["logs-damaged"]
    assert (found["danger"], found["examples"]) == ("loss", ["holed"])
    assert found["fix"].startswith("bkctl log show holed")


def test_of_many_ledgers_a_sample_is_read_and_marked_ones_first() -> None:
    closed = metadata(state=LedgerState.CLOSED, last_entry_id=EntryId(0), length=1)
    marks = {LedgerId(7_000 + n): Mark(LedgerId(7_000 + n), (A,), None, None) for n in range(10)}
    in_service = closed.all_bookies()
    census = LedgerCensus(now_ms=0, in_service=in_service, marks=marks, limits=DoctorLimits())
    for ledger_id in range(3 * ENDS_READ_MAX):
        census.add(StoredLedger(LedgerId(ledger_id), Versioned(closed, b"1")))
    chosen = census.to_read()
    assert len(chosen) == len(set(chosen)) == ENDS_READ_MAX
    assert chosen[:10] == list(marks)
    assert max(chosen[10:]) >= ENDS_READ_MAX, "not only the first"


@pytest.mark.parametrize("value", [b"", b"\xff\xfe", b"x" * 100_000])
def test_a_damaged_id_or_layout_is_a_finding_beside_all_others(
    patient: Patient, value: bytes
) -> None:
    patient.ledger(1, A, B, C)
    patient.mark(1, C)
    patient.world.run(patient.store.set_replication_enabled(enabled=False))
    for node in (zk_paths.INSTANCE_ID, zk_paths.LAYOUT):
        before = patient.world.metadata.get(node).value
        patient.world.metadata.set(node, value)
        found = patient.findings()
        assert node in found["metadata-damaged"]["what"]
        assert f"store the node {node} again" in found["metadata-damaged"]["fix"]
        assert len(found["metadata-damaged"]["what"]) < 200
        assert "autorecovery-disabled" in found
        assert not {"marks-of-deleted", "bookie-retired"} & found.keys()
        patient.world.metadata.set(node, before)


def test_1_ledgers_that_hold_a_removal_up_are_named(patient: Patient) -> None:
    patient.ledger(1, A, B)
    patient.ledger(2, B, C)
    patient.ledger(3, A, C)
    patient.world.kill("b2")
    found = patient.findings()
    assert found["ledgers-lack-copies"]["examples"] == ["1", "2"]
    assert found["ledgers-lack-copies"]["what"] == (
        "2 ledgers are under-replicated; all have entries with one copy left; none is marked for "
        "repair"
    )
    assert found["ledgers-lack-copies"]["fix"] == "bkctl autorecovery audit"
    assert found["bookie-down"]["what"] == "b2 is down, and 2 ledgers list it"


def test_1_a_bookie_that_cannot_be_spared_is_replaced_before_a_decommission() -> None:
    patient = Patient(3)
    patient.ledger(1, A, B, C)
    patient.world.kill("b2")
    assert patient.findings()["bookie-down"]["fix"] == (
        "start b2 again; if it is lost for good, add a bookie, then: bkctl decommission b2"
    )


def test_2_a_bookie_that_no_ledger_lists_is_started_or_decommissioned(patient: Patient) -> None:
    patient.ledger(1, A, C)
    patient.world.kill("b2")
    found = patient.findings()
    assert set(found) == {"bookie-retired"}
    assert found["bookie-retired"]["fix"] == (
        "start b2 again, or remove it for good: bkctl decommission b2"
    )


def test_3_an_empty_ledger_left_open_is_told_from_one_that_cannot_be_copied(
    patient: Patient,
) -> None:
    patient.ledger(1, A, B, state=LedgerState.OPEN)
    patient.ledger(2, B, BookieId("gone:1"))
    patient.ledger(3, A, B, entries=0)
    patient.world.kill("b2")
    found = patient.findings()
    assert found["ledgers-abandoned"]["examples"] == ["1"]
    assert found["ledgers-abandoned"]["fix"] == "bkctl ledger recover 1"
    assert found["ledgers-out-of-reach"]["examples"] == ["2"]
    assert found["bookies-unknown"]["examples"] == ["gone:1"]
    assert found["ledgers-lack-copies"]["examples"] == ["1"], "2 is a loss already"


def test_ledgers_with_one_copy_left_are_named_among_others(patient: Patient) -> None:
    patient.ledger(1, A, B, C)
    patient.ledger(2, A, B)
    patient.world.kill("b2")
    assert patient.findings()["ledgers-lack-copies"]["what"] == (
        "2 ledgers are under-replicated; ledger 2 has entries with one copy left; none is marked "
        "for repair"
    )


def test_notes_are_no_problem_and_are_counted(patient: Patient) -> None:
    patient.ledger(1, A, write_quorum=1)
    result = patient.doctor()
    assert result.status == 0
    assert ": 1 note, and no problem found. Only the first and last " in result.err


def test_a_ledger_that_was_handed_over_has_no_writer_to_miss(patient: Patient) -> None:
    handed = {"bkctl.handover": b'{"v":1,"last":-1,"length":0}'}
    patient.ledger(1, A, B, state=LedgerState.OPEN, custom=handed, age_s=90 * DAY_S)
    patient.world.kill("b2")
    found = patient.findings()
    assert "ledgers-abandoned" not in found
    assert "ledgers-open-long" not in found


def test_4_too_few_bookies_are_told_with_the_numbers(patient: Patient) -> None:
    patient.ledger(1, A, B, C, D, state=LedgerState.OPEN)
    patient.world.kill("b4")
    too_few = patient.findings()["bookies-too-few"]
    assert too_few["what"] == (
        "only 3 bookies are writable: no bookie can replace a lost one in 1 ledger with an "
        "ensemble of 4"
    )
    assert too_few["examples"] == ["1"]
    assert too_few["fix"] == "start b4 again, or add bookies"
    patient.mark(1, D)
    lacking = patient.findings()["ledgers-lack-copies"]["fix"]
    assert lacking.startswith("workers repair it once more bookies are writable; ")
    patient.world.kill("b3")
    patient.world.kill("b2")
    patient.world.kill("b1")
    assert "bookies-none-writable" in patient.findings()


def test_5_marks_of_deleted_ledgers_are_seen(patient: Patient) -> None:
    patient.mark(7, A, age_s=DAY_S)
    found = patient.findings()
    assert found["marks-of-deleted"]["examples"] == ["7"]
    assert "marks-stale" not in found


def test_6_ledgers_of_one_copy_are_not_mended_for_ever_unseen(patient: Patient) -> None:
    patient.ledger(1, B, write_quorum=1)
    patient.mark(1, B)
    patient.world.kill("b2")
    found = patient.findings()
    assert found["marks-unmendable"]["examples"] == ["1"]
    assert found["marks-unmendable"]["fix"] == "start b2 again"
    assert found["ledgers-single"]["danger"] == "note"
    assert found["ledgers-out-of-reach"]["danger"] == "loss"
    assert found["ledgers-out-of-reach"]["fix"] == "start b2 again"


def test_7_marks_that_outlived_a_bookies_return_are_told_but_not_as_needless(
    patient: Patient,
) -> None:
    ledger_id = closed_ledger(patient.world, patient.world.client())
    patient.mark(ledger_id, B)
    found = patient.findings()["marks-in-service"]
    assert (found["examples"], found["danger"]) == ([str(ledger_id)], "note")
    assert "or lost entries" in found["what"], "a check may have made it"
    assert not found["fix"], "the worker does it"
    assert f"note     ledger {ledger_id} is marked for repair, though" in patient.doctor().out


def test_7_a_bookie_that_has_no_entry_of_a_marked_ledger_is_not_called_in_service(
    patient: Patient,
) -> None:
    patient.ledger(1, A, B, C, write_quorum=2, entries=1)
    patient.mark(1, C)
    patient.world.kill("b3")
    found = patient.findings()
    assert "all bookies with its entries are registered" in found["marks-in-service"]["what"]
    assert "ledgers-lost" not in found, "the bookie that is down is asked nothing"


def test_7_marked_ledgers_whose_entries_no_bookie_has_are_a_loss(patient: Patient) -> None:
    world = patient.world
    deleted, cut, intact = (closed_ledger(world, world.client()) for _ in range(3))
    for ledger_id in (deleted, cut, intact):
        patient.mark(ledger_id, BookieId("b1"))
    for bookie in world.bookies.values():
        bookie.ledgers.pop(deleted, None)
        if cut in bookie.ledgers:
            del bookie.ledgers[cut].entries[4]
    found = patient.findings()
    lost = found["ledgers-lost"]
    assert (lost["danger"], lost["examples"]) == ("loss", [str(deleted), str(cut)])
    assert f"bkctl ledger verify {deleted}, which reads all entries, or " in lost["fix"]
    assert f"bkctl disk salvage {deleted} --out DIR" in lost["fix"]
    assert found["marks-in-service"]["examples"] == [str(intact)]
    assert found["marks-in-service"]["count"] == 1


def test_8_idle_workers_are_told_with_the_cause(patient: Patient) -> None:
    patient.ledger(1, A, B, C, D)
    patient.mark(1, D, age_s=2 * 3600)
    patient.world.kill("b4")
    assert (
        "3 writable bookies leave no bookie to copy to" in patient.findings()["marks-stale"]["what"]
    )
    assert "marks-stale" not in patient.findings("--stale", "3h")
    patient.world.run(patient.store.set_replication_enabled(enabled=False))
    found = patient.findings()
    assert "autorecovery is disabled" in found["marks-stale"]["what"]
    assert found["marks-stale"]["fix"] == "bkctl autorecovery enable"
    assert found["autorecovery-disabled"]["danger"] == "risk"


def test_a_mark_with_a_worker_makes_progress(patient: Patient) -> None:
    patient.ledger(1, A, B)
    patient.mark(1, D, age_s=2 * 3600)
    patient.world.run(patient.store.acquire_lock(LedgerId(1)))
    assert "marks-stale" not in patient.findings()


def test_10_a_check_that_has_not_run_for_weeks_is_told(patient: Patient) -> None:
    last_ms = int((time.time() - 22 * DAY_S) * 1000)
    patient.world.run(patient.store.set_check_time("all-ledgers", last_ms))
    overdue = patient.findings()["check-overdue"]
    assert overdue["what"] == "the auditor's check of all ledgers is due"
    assert overdue["fix"] == (
        "bkctl autorecovery audit --check all-ledgers, or restart the auditor if Java's: b1"
    )


def test_11_read_only_and_full_bookies_are_told_with_their_room(patient: Patient) -> None:
    def nearly_full(request: Request) -> Ruling:
        if isinstance(request, BookieInfoRequest):
            return BookieInfoResponse(ReturnCode.EOK, 1000, 40)
        return Fate.SERVE

    patient.world["b3"].policy = nearly_full
    session = patient.world._sessions[B]
    service = patient.world.run(session.service_info(B))
    patient.world.run(session.register(B, service, read_only=True))
    found = patient.findings()
    assert found["bookie-nearly-full"]["what"] == (
        "b3 is nearly full (96 % used, 40 B free of 1000 B)"
    )
    assert "bookie-nearly-full" not in patient.findings("--full", "97%")
    assert "bookie-nearly-full" not in patient.findings("--full", "0.97")
    assert found["bookie-read-only"]["examples"] == ["b2"]
    assert {one["danger"] for one in found.values()} == {"trouble"}


def test_too_few_writable_bookies_for_the_next_ledger_are_a_trouble(patient: Patient) -> None:
    patient.ledger(1, A, B, C, D)
    assert "bookies-too-few" not in patient.findings()
    session = patient.world._sessions[B]
    service = patient.world.run(session.service_info(B))
    patient.world.run(session.register(B, service, read_only=True))
    too_few = patient.findings()["bookies-too-few"]
    assert too_few["danger"] == "trouble"
    assert (
        "only 3 bookies are writable, and the newest ledger has an ensemble of 4"
        in (too_few["what"])
    )


def test_bookies_of_a_formatted_cluster_are_told_to_restore_the_backup(patient: Patient) -> None:
    for one in patient.world.run(patient.store.known_bookies()):
        patient.world.run(patient.store.remove_cookie(one))
    found = patient.findings()["cookies-missing"]
    assert "bookied deletes nothing meanwhile, for its garbage collection needs" in found["what"]
    restore = "if the cluster was formatted, stop its bookies, then: bkctl cluster restore FILE"
    assert found["fix"].startswith(restore)
    assert "bkctl disk format --force metadata -c FILE" in found["fix"]


def test_13_cookies_that_keep_bookies_from_starting_are_seen(patient: Patient) -> None:
    patient.world.run(patient.store.remove_cookie(A))
    patient.world.run(patient.store.remove_cookie(B))
    patient.world.run(patient.store.remove_cookie(C))
    patient.cookie(B, cluster="another")
    patient.world.run(patient.store.write_cookie(C, b"nonsense", NEW))
    found = patient.findings()
    assert found["cookies-missing"]["examples"] == ["b1"]
    assert found["cookies-of-another-cluster"]["examples"] == ["b2"]
    assert "bookieformat" not in found["cookies-of-another-cluster"]["fix"]
    assert found["cookies-unreadable"]["examples"] == ["b3"]


def test_14_a_bookie_that_moved_to_another_id_is_recognised(patient: Patient) -> None:
    patient.ledger(1, A, BookieId("host-b2:2"))
    patient.cookie("host-b2:2")
    found = patient.findings()["bookie-moved"]
    assert found["examples"] == ["host-b2:2", "b2"]
    assert found["fix"] == "bkctl bookie rename host-b2:2 b2"


def test_two_ids_at_one_address_are_seen(patient: Patient) -> None:
    session = patient.world._sessions[B]
    service = patient.world.run(session.service_info(B))
    patient.world.run(session.register(BookieId("twin"), service, read_only=False))
    assert patient.findings()["bookies-at-one-address"]["examples"] == ["b2", "twin"]


def test_17_a_bookie_that_is_registered_and_dead_is_seen(patient: Patient) -> None:
    patient.ledger(1, A, B)
    patient.world.kill("b2", unregister=False)
    found = patient.findings()["bookie-unreachable"]
    assert found["what"].startswith("b2 is registered and does not answer, and 1 ledger lists it:")
    assert found["fix"].startswith("start b2 again if its process has ended")
    assert "ledgers-unanswered" not in patient.findings()
    patient.world.kill("b1", unregister=False)
    found = patient.findings()["ledgers-unanswered"]
    assert (found["count"], found["fix"]) == (1, "bring back one of b1, b2")
    assert found["what"].endswith("they cannot be read now")


def test_bookies_that_refuse_the_client_are_no_loss(patient: Patient) -> None:
    patient.ledger(1, A, B)

    def refuse(request: Request) -> Ruling:
        if isinstance(request, BookieInfoRequest):
            return BookieInfoResponse(ReturnCode.EUA)
        if isinstance(request, ReadRequest):
            return ReadResponse(ReturnCode.EUA, request.ledger_id, request.entry_id)
        return Fate.SERVE

    for bookie in patient.world.bookies.values():
        bookie.policy = refuse
    found = patient.findings()
    assert set(found) == {"bookies-refuse"}
    assert found["bookies-refuse"]["what"].startswith("4 bookies refuse this client, so their ")
    assert "-c" in found["bookies-refuse"]["fix"]
    listed = run_in(patient.world, "bookie", "list").err
    assert "b1 refuses this client: " in listed


def test_18_programs_get_the_same_as_people(patient: Patient) -> None:
    patient.ledger(1, A, B)
    patient.world.kill("b2")
    told = patient.doctor()
    for one in patient.findings().values():
        assert one["what"] in told.out
        assert f"-> {one['fix']}" in told.out
        assert told.out.startswith("risk ")
    names = patient.doctor("-o", "id").out.split()
    assert names == list(patient.findings())


def test_20_recoveries_that_nobody_ends_are_seen(patient: Patient) -> None:
    patient.ledger(1, A, B, state=LedgerState.IN_RECOVERY)
    patient.ledger(2, A, B, state=LedgerState.OPEN, age_s=8 * DAY_S)
    found = patient.findings()
    assert found["ledgers-in-recovery"]["fix"] == "bkctl ledger recover 1"
    assert found["ledgers-open-long"]["examples"] == ["2"]
    assert "`bkctl ledger tail 2 -f -n 0` prints no" in found["ledgers-open-long"]["fix"]
    assert "ledgers-open-long" not in patient.findings("--open-for", "30d")


def test_21_metadata_without_a_bookie_is_a_loss(patient: Patient) -> None:
    patient.ledger(1, BookieId("x:1"), BookieId("y:1"))
    found = patient.findings()
    assert found["ledgers-out-of-reach"]["danger"] == "loss"
    assert found["bookies-unknown"]["count"] == 2


def test_25_no_room_for_one_more_copy_is_told(patient: Patient) -> None:
    patient.ledger(1, A, B, C)
    patient.world.kill("b3")
    assert "bookies-too-few" not in patient.findings()
    patient.world.kill("b4")
    assert "only 2 bookies are writable" in patient.findings()["bookies-too-few"]["what"]


def test_26_a_million_ledgers_take_no_more_memory_than_a_few() -> None:
    held = metadata()
    for in_service in (frozenset[BookieId](), frozenset(held.ensemble[:1])):
        seen = LedgerCensus(now_ms=0, in_service=in_service, marks={}, limits=DoctorLimits())
        for number in range(10_000):
            seen.add(StoredLedger(LedgerId(number), None))
            seen.add(StoredLedger(LedgerId(number), Versioned(held, NEW)))
        lost = [seen.lacking, seen.unmarked] if in_service else [seen.out_of_reach]
        for some in (seen.unreadable, *seen.by_ensemble.values(), *lost):
            assert (some.count, len(some.first)) == (10_000, REMEMBERED_MAX)


def test_what_is_damaged_is_told_and_the_rest_is_looked_at_all_the_same(patient: Patient) -> None:
    patient.ledger(1, A, B)
    patient.mark(7, A)
    (mark,) = [path for path in patient.dump() if path.endswith("urL0000000007")]
    patient.world.metadata.set(mark, b"\xffnonsense")
    (ledger,) = [path for path in patient.dump() if path.endswith("/L0001")]
    patient.world.metadata.set(ledger, b"nonsense")
    patient.world.metadata.set(f"/available/{C}", b"\xff\xff\xff")
    found = patient.findings()
    assert found["metadata-damaged"]["danger"] == "risk"
    assert found["metadata-damaged"]["what"].startswith("the mark of ledger 7: ")
    assert found["metadata-damaged"]["fix"] == "bkctl autorecovery forget 7"
    assert found["ledgers-unreadable"]["examples"] == ["1"]
    assert found["bookie-unreachable"]["examples"] == [C]
    assert "no address that can be read" in found["bookie-unreachable"]["what"]


def test_what_autorecovery_keeps_and_cannot_read_is_told_with_the_command_that_mends_it(
    patient: Patient,
) -> None:
    (delay,) = [path for path in patient.dump() if path.endswith("lostBookieRecoveryDelay")]
    patient.world.metadata.set(delay, b"soon")
    assert patient.findings()["metadata-damaged"]["fix"] == "bkctl autorecovery delay 0"
    run_in(patient.world, "autorecovery", "delay", "0")
    patient.world.run(patient.store.set_check_time("replicas", 1))
    (last,) = [path for path in patient.dump() if path.endswith("replicascheckctime")]
    patient.world.metadata.set(last, b"\xff")
    fix = patient.findings()["metadata-damaged"]["fix"]
    run_in(patient.world, *fix.split()[1:])
    assert "metadata-damaged" not in patient.findings()


def test_a_lost_instance_id_is_no_reason_to_begin_bookies_anew(patient: Patient) -> None:
    (node,) = [path for path in patient.dump() if path.endswith("INSTANCEID")]
    patient.world.metadata.delete(node)
    found = patient.findings()
    assert "cookies-of-another-cluster" not in found
    assert found["instance-id-missing"]["what"].endswith(f"cookies say {CLUSTER}")


def test_autorecovery_that_is_off_or_undirected_is_told(patient: Patient) -> None:
    patient.world.run(patient.store.resign())
    assert patient.findings()["auditor-missing"]["danger"] == "trouble"
    patient.ledger(1, A, B)
    patient.world.kill("b2")
    found = patient.findings()
    assert found["auditor-missing"]["danger"] == "risk"
    start = "start b2 again, or bookied autorecovery --conf FILE"
    assert found["ledgers-lack-copies"]["fix"] == found["auditor-missing"]["fix"] == start
    patient.world.run(patient.store.set_replication_enabled(enabled=False))
    assert patient.findings()["ledgers-lack-copies"]["fix"] == "bkctl autorecovery enable"
    note = Pause(until_ms=4_000_000_000_000).encode()
    patient.world.run(patient.store.set_replication_note(note))
    found = patient.findings()
    assert ", for another " in found["autorecovery-disabled"]["what"]
    fix = "the pause ends by itself; to end it now: bkctl autorecovery enable"
    assert found["autorecovery-disabled"]["fix"] == fix
    assert found["ledgers-lack-copies"]["fix"] == "bkctl explain autorecovery-disabled"


def test_a_lost_bookies_ledgers_wait_for_the_delay_before_an_audit_is_advised(
    patient: Patient,
) -> None:
    patient.ledger(1, A, B, C)
    patient.world.kill("b2")
    assert patient.findings()["ledgers-lack-copies"]["fix"] == "bkctl autorecovery audit"
    patient.world.run(patient.store.set_lost_bookie_recovery_delay(120))
    assert patient.findings()["ledgers-lack-copies"]["fix"] == (
        "wait: the auditor marks them when the bookie has been down for 2m, or to skip this delay: "
        "bkctl autorecovery audit"
    )
    patient.world.kill("b3")
    assert patient.findings()["ledgers-lack-copies"]["fix"] == "bkctl autorecovery audit"


def test_findings_that_a_filter_hides_have_no_status_and_are_not_counted(patient: Patient) -> None:
    patient.world.run(patient.store.set_lost_bookie_recovery_delay(2 * 3600))
    lacks = ("--filter", "name=ledgers-lack-copies")
    hidden = patient.doctor(*lacks)
    assert (hidden.status, "trouble" in hidden.err) == (0, False)
    assert "no problem found that matches --filter. " in hidden.err
    patient.ledger(1, A, B, C)
    patient.world.kill("b2")
    alarm = patient.doctor(*lacks)
    assert (alarm.status, "1 finding of loss or risk" in alarm.err) == (10, True)
    both = patient.doctor()
    assert "2 findings of loss or risk, 1 finding of trouble" in both.err
    assert "No entries were read, because no closed ledger" in both.err


def test_a_pause_that_ends_by_itself_is_a_note_while_no_ledger_lacks_a_copy(
    patient: Patient,
) -> None:
    """So that `doctor --until healthy` can stand between the steps of a rolling restart."""
    patient.ledger(1, A, B, C)
    patient.world.run(patient.store.set_replication_enabled(enabled=False))
    assert patient.findings()["autorecovery-disabled"]["danger"] == "trouble"
    for until_ms, danger in ((4_000_000_000_000, "note"), (1, "trouble")):
        note = Pause(until_ms=until_ms).encode()
        patient.world.run(patient.store.set_replication_note(note))
        assert patient.findings()["autorecovery-disabled"]["danger"] == danger
    patient.world.run(
        patient.store.set_replication_note(Pause(until_ms=4_000_000_000_000).encode())
    )
    patient.world.kill("b2")
    assert patient.findings()["autorecovery-disabled"]["danger"] == "risk"


def test_a_delay_that_was_forgotten_is_told(patient: Patient) -> None:
    patient.world.run(patient.store.set_lost_bookie_recovery_delay(2 * 3600))
    assert "only after 2h" in patient.findings()["delay-long"]["what"]


def test_a_lock_that_is_held_for_hours_is_told() -> None:
    def seen(age_s: int) -> list[ClusterFinding]:
        ledgers = LedgerCensus(now_ms=0, in_service=frozenset(), marks={}, limits=DoctorLimits())
        lock = HeldLock(LedgerId(7), "host-1", -age_s * 1000)
        cluster = ClusterSurvey(
            now_ms=0, limits=DoctorLimits(), instance_id=CLUSTER, bookies=(), ledgers=ledgers,
            locks=(lock,),
        )  # fmt: skip
        return [one for one in diagnose(cluster, None) if one.kind == "locks-stale"]

    assert seen(60) == []
    (found,) = seen(5 * 3600)
    assert (found.severity, found.examples) == (Severity.TROUBLE, ("7",))
    assert "one for 5h by host-1" in found.message


def test_clocks_that_run_ahead_are_told(patient: Patient) -> None:
    patient.ledger(1, A, B, age_s=-600)
    found = patient.findings()["clock-skew"]
    assert "ledger 1 was created" in found["what"]
    assert "10m" in found["what"] or "9m" in found["what"]


def test_the_id_that_makes_java_delete_everything_is_the_worst(patient: Patient) -> None:
    text = patient.dump()
    patient.ledger(1, A, B)
    (path,) = set(patient.dump()) - set(text) - {"/00", "/00/0000"}
    value = patient.dump()[path][0]
    deadly = f"{LEDGER_ID_REFUSED:019d}"
    at = ""
    for cut in (deadly[:3], deadly[3:7], deadly[7:11], deadly[11:15]):
        at += f"/{cut}"
        patient.world.metadata.create(at, b"")
    patient.world.metadata.create(f"{at}/L{deadly[15:]}", value)
    found = patient.findings()
    assert next(iter(found)) == "ledger-id-deadly"


def test_a_health_check_that_is_off_is_told_and_can_be_switched(patient: Patient) -> None:
    assert run_in(patient.world, "cluster", "health-check", "disable").out.endswith("disabled\n")
    found = patient.findings()["health-check-off"]
    run_in(patient.world, *found["fix"].split()[1:])
    assert "health-check-off" not in patient.findings()


def test_every_finding_is_shown_by_one_view() -> None:
    view = view_of(ClusterFinding)
    assert view.lines is not None
    many = ClusterFinding(
        Severity.RISK, "x", "3 things are wrong", fix="mend them", examples=("1", "2"), count=3
    )
    assert list(view.lines(many, None, False)) == [
        "risk     3 things are wrong", "         1, 2, ...", "         -> mend them",
    ]  # fmt: skip


def test_what_a_terminal_would_obey_is_not_in_a_finding() -> None:
    lines = view_of(ClusterFinding).lines
    assert lines is not None
    one = ClusterFinding(Severity.RISK, "x", "mark \x1b[2J", fix="mend \x9bH", examples=("\x07",))
    text = "\n".join(lines(one, 80, False))
    assert text == "risk     mark \\x1b[2J: \\x07\n         -> mend \\x9bH"


def test_on_a_terminal_findings_are_wrapped_at_words_and_the_worst_are_red() -> None:
    view = view_of(ClusterFinding)
    assert view.lines is not None
    fix = "bkctl ledger recover 4711 --with --a --line --to --copy"
    one = ClusterFinding(
        Severity.LOSS,
        "x",
        "ledger 4711 has lost each of its copies",
        fix=fix,
        examples=("4711",),
        count=1,
    )
    assert list(view.lines(one, 40, True)) == [
        "\x1b[1;31mloss     \x1b[0mledger 4711 has lost each of",
        "         its copies",
        f"         -> {fix}",
    ]
    with_a_choice = attrs.evolve(
        one, fix="start the bookie again, or remove it: bkctl decommission b1"
    )
    assert list(view.lines(with_a_choice, 40, False))[2:] == [
        "         -> start the bookie again",
        "            or remove it:",
        "            bkctl decommission b1",
    ]


def test_a_metadata_service_out_of_reach_is_status_5() -> None:
    assert cli.run(["doctor", "-u", "sqlite:///nowhere/at/all.db"]) == 5


def test_commands_that_repair_a_cluster_of_the_command_line_are_told_with_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = f"sqlite://{tmp_path}/metadata.db"

    async def fill(store: Any) -> None:
        await store.initialize()
        await store.set_replication_enabled(enabled=False)

    with_store(uri, fill)
    assert cli.run(["doctor", "-u", uri]) == ExitStatus.PROBLEMS
    out, err = capsys.readouterr()
    assert "-> bkctl autorecovery enable\n" in out
    assert f"(the commands above work on this cluster with -u {uri} after bkctl)\n" in err
    monkeypatch.setenv("BKCTL_SERVICE_URI", uri)
    assert cli.run(["doctor"]) == ExitStatus.PROBLEMS
    assert "after bkctl" not in capsys.readouterr().err
