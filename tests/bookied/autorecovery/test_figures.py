"""What auditor and worker count."""

from __future__ import annotations

import random
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from bkclient.replication.autorecovery_admin import trigger_audit
from bookied.admin.monitoring import metrics_with_own_names
from bookied.admin.monitoring.prometheus_text import exposition
from bookied.autorecovery.auditor_and_worker import AutoRecoverySession
from bookied.config.autorecovery import AutoRecoveryConfig
from bookied.stats.metrics import FAILURES_MAX, RepairStats, WorkerStats
from tests.bkclient.replication_world import STRIPED, closed_ledger, member, store_of
from tests.bkclient.worlds import World
from tests.bookied.autorecovery.workers import CHECKS_OFF, run_until_no_marks
from wire.ids import BookieId, LedgerId


class Counted:
    """Autorecovery in a world, and its page."""

    def __init__(self, world: World, **settings: Any) -> None:
        self.world, self.stats = world, RepairStats()
        config = AutoRecoveryConfig(**(CHECKS_OFF | settings))
        part = AutoRecoverySession(
            world.client(), config, BookieId("me"), random.Random(0), self.stats
        )
        self.running = world.start(part.run())
        world.settle()

    def value(self, name: str, **labels: str) -> float:
        text = exposition(metrics_with_own_names.of_autorecovery(self.stats))
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if sample.name in {name, f"{name}_total"} and sample.labels == labels:
                    return sample.value
        raise AssertionError(f"no {name} {labels}")

    def auditor(self, name: str, **labels: str) -> float:
        return self.value(f"replication_auditor_{name}", **labels)

    def worker(self, name: str, **labels: str) -> float:
        return self.value(f"replication_replication_worker_{name}", **labels)


OK = {"success": "true"}


def test_an_audit_and_its_repairs_are_counted() -> None:
    world = World(5)
    client = world.client()
    ledgers = [closed_ledger(world, client, 6, **STRIPED) for _ in range(4)]
    lost = member(world, ledgers[0]).bookie_id
    listed = [i for i in ledgers if lost in world.stored(i).all_bookies()]
    counted = Counted(world)
    assert counted.auditor("AUDIT_BOOKIES_TIME_count", **OK) == 1
    assert counted.auditor("NUM_UNDER_REPLICATED_LEDGERS_sum", **OK) == 0
    world.kill(lost)
    world.settle(5)
    run_until_no_marks(world)
    assert counted.auditor("NUM_UNDER_REPLICATED_LEDGERS_sum", **OK) == len(listed)
    size_bytes = 6 * len(b"entry 0")
    total = counted.auditor("UNDER_REPLICATED_LEDGERS_TOTAL_SIZE_sum", **OK)
    assert total == size_bytes * len(listed)
    assert counted.worker("rereplicate_count", **OK) == len(listed)
    assert counted.worker("NUM_FULL_OR_PARTIAL_LEDGERS_REPLICATED") == len(listed)
    # Two of three bookies have each of six entries: every bookie has four.
    assert counted.worker("NUM_ENTRIES_WRITTEN") == 4 * len(listed)
    assert counted.worker("NUM_ENTRIES_READ") == 4 * len(listed)
    written = counted.worker("NUM_BYTES_WRITTEN_sum", **OK)
    assert written == counted.worker("NUM_BYTES_READ_sum", **OK) > 4 * len(listed) * 7
    assert abs(counted.value("bookied_last_audit_time_seconds") - world.clock.seconds()) < 2000


def test_what_a_worker_cannot_mend_is_counted() -> None:
    world = World(4)
    ledger_id = closed_ledger(world, world.client(), 4)
    for index in range(3):
        del member(world, ledger_id, index).ledgers[ledger_id].entries[2]
    gone = world.stored(ledger_id).ensemble[0]
    counted = Counted(world)
    world.kill(gone)
    world.settle(8)
    assert counted.worker("NUM_ENTRIES_UNABLE_TO_READ_FOR_REPLICATION") >= 1
    assert counted.worker("NUM_DEFER_LEDGER_LOCK_RELEASE_OF_FAILED_LEDGER") >= 1
    assert counted.worker("rereplicate_count", success="false") >= 1
    assert counted.worker("rereplicate_count", **OK) == 0
    ((failed, (at_s, why)),) = counted.stats.worker.failures.items()
    assert (failed, at_s <= world.clock.seconds()) == (ledger_id, True)
    assert why.startswith("the fragment at entry 0: ")
    assert "entry 2" in why
    world.run(world.client().delete_ledger(ledger_id))
    world.settle(700)
    assert counted.stats.worker.failures == {}


def test_only_the_latest_failures_are_remembered() -> None:
    stats = WorkerStats()
    for number in range(FAILURES_MAX + 3):
        stats.failed(LedgerId(number), float(number), "no bookies")
    stats.failed(LedgerId(3), 9999.0, "again")
    assert len(stats.failures) == FAILURES_MAX
    assert (next(iter(stats.failures)), next(reversed(stats.failures))) == (4, 3)


def test_the_checks_tell_what_they_found() -> None:
    world = World(4)
    client = world.client()
    ledger_id, other = closed_ledger(world, client, 4), closed_ledger(world, client, 4)
    for index in range(3):
        del member(world, ledger_id, index).ledgers[ledger_id].entries[2]
    del member(world, other, 1).ledgers[other].entries[1]
    store = store_of(world)
    world.run(store.mark_underreplicated(LedgerId(77), (BookieId("b1"),)))
    world.run(store.acquire_lock(LedgerId(77)))
    counted = Counted(
        world,
        replicas_check_interval_s=3600,
        ledger_check_interval_s=3600,
        placement_check_interval_s=3600,
        overdue_marks_s=1,
    )
    world.settle(7300)
    assert counted.auditor("NUM_LEDGERS_HAVING_NO_REPLICA_OF_AN_ENTRY") == 1
    assert counted.auditor("NUM_LEDGERS_HAVING_LESS_THAN_AQ_REPLICAS_OF_AN_ENTRY") == 0
    assert counted.auditor("NUM_LEDGERS_HAVING_LESS_THAN_WQ_REPLICAS_OF_AN_ENTRY") == 1
    assert counted.auditor("REPLICAS_CHECK_TIME_count", **OK) >= 1
    assert counted.auditor("NUM_LEDGERS_CHECKED") >= 2
    checks = counted.auditor("NUM_FRAGMENTS_PER_LEDGER_count", **OK)
    assert counted.auditor("NUM_BOOKIES_PER_LEDGER_sum", **OK) == 3 * checks
    assert counted.auditor("NUM_UNDERREPLICATED_LEDGERS_ELAPSED_RECOVERY_GRACE_PERIOD") == 1
    assert counted.auditor("NUM_LEDGERS_NOT_ADHERING_TO_PLACEMENT_POLICY") == 0


def test_audits_that_wait_or_are_left_out_are_counted() -> None:
    world = World(4)
    counted = Counted(world, lost_bookie_recovery_delay_s=100)
    world.kill("b1")
    world.settle(5)
    assert counted.auditor("NUM_BOOKIE_AUDITS_DELAYED") == 1
    world.restart("b1")
    world.settle(5)
    assert counted.auditor("NUM_DELAYED_BOOKIE_AUDITS_CANCELLED") == 1
    before = counted.auditor("AUDIT_BOOKIES_TIME_count", **OK)
    world.run(trigger_audit(world.client()))
    world.settle(5)
    assert counted.auditor("AUDIT_BOOKIES_TIME_count", **OK) == before + 1


def test_alone_the_names_have_one_scope_less() -> None:
    text = exposition(metrics_with_own_names.of_autorecovery(RepairStats(), prefix=""))
    assert "\n# TYPE replication_worker_rereplicate summary\n" in text
    assert "# TYPE auditor_AUDIT_BOOKIES_TIME summary\n" in text
