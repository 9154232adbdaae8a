"""`cluster status`, `ping`, `test` and `health-check`, and their columns."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

import attrs
from twisted.internet.defer import Deferred

from bkclient.admin import cluster_operations, sanity_checks
from bkclient.admin.ledger_scan import walk
from bkclient.admin.sanity_checks import ClusterCheck
from bkclient.client import Client
from bkclient.connection.pool import BookiePool
from bkclient.metadata.stored_values import BookieState, BookieStatus
from bkclient.metadata.tree.nodes import run_together
from bkclient.placement.free_space import ask_sizes
from bkclient.replication import autorecovery_admin
from bkctl.bookies import ask_bookies
from bkctl.bookies.bookie_columns import BookieSummary
from bkctl.commands.autorecovery.audit import delay_text
from bkctl.commands.autorecovery.unmarked_ledgers import lack_marks
from bkctl.commands.bookie.details import space
from bkctl.errors import CommandError, ProblemsError, error_message
from bkctl.exit_status import ExitStatus
from bkctl.output.filters import thresholds
from bkctl.output.units import counted, human_bytes, human_duration, human_latency
from bkctl.output.views import LEDGER, WIDE, Column, Kind, declare_view, evolve, field, shown
from bkctl.session.session import Session
from wire.codes import ProtocolVersion
from wire.errors import BookKeeperError
from wire.ids import BookieId, LedgerId

METADATA: Final = "metadata"

_FULL_AT: Final = 0.95


def _underreplicated(v: ClusterStatus) -> str:
    marked = v.autorecovery.marked
    if v.unmarked is not None and v.unmarked:
        return f"{marked} marked, {v.unmarked} not marked yet"
    if v.unmarked is None and v.down:
        return f"{marked} marked; --ledgers counts those without a mark"
    return str(marked)


def _counts(found: Mapping[str, int]) -> str:
    return "\n".join(f"{name}: {count}" for name, count in found.items()) or "-"


@shown(
    "clusters",
    Column(
        "autorecovery",
        "Whether autorecovery is enabled.",
        "autorecovery.enabled",
        Kind.FLAG,
        after="headroom",
    ),
    Column(
        "auditor", "The bookie that is the auditor.", "autorecovery.auditor", after="autorecovery"
    ),
    Column(
        "delay_s",
        "Seconds that a lost bookie may stay away.",
        "autorecovery.delay_s",
        Kind.COUNT,
        header="DELAY",
        cell=lambda v: delay_text(v.autorecovery.delay_s),
        after="auditor",
    ),
    Column(
        "underreplicated",
        "Ledgers marked as lacking replicas.",
        "autorecovery.marked",
        Kind.COUNT,
        cell=_underreplicated,
        after="delay_s",
    ),
    Column(
        "being_repaired",
        "Number of under-replicated ledgers that a worker has locked, also after a failed repair.",
        "autorecovery.being_repaired",
        Kind.COUNT,
        header="LOCKED BY WORKERS",
        after="underreplicated",
    ),
    kw_only=True,
    id="instance_id",
    healthy=lambda v: not v.problems,
)
class ClusterStatus:
    """The state of a cluster, and its problems."""

    uri: str = field("The metadata service.")
    instance_id: str | None = field("The cluster's id.")
    layout: str | None = field("Layout of the metadata.")
    writable: int = field("Bookies that accept adds.")
    read_only: int = field("Bookies that only serve reads.")
    down: int = field("Bookies with a cookie that are not registered.")
    versions: Mapping[str, int] = field(
        "Number of bookies with each version, of the bookies that report a version.",
        cell=lambda v: _counts(v.versions),
    )
    """The number of bookies with each version; bookies that do not report one are left out."""
    free: int = field("Free space on all disks; a shared disk counts once.", kind=Kind.BYTES)
    total: int = field("Size of all disks; a shared disk counts once.", kind=Kind.BYTES)
    """In bytes."""
    racks: Mapping[str, int] = field(
        "Number of registered bookies in each rack.", cell=lambda v: _counts(v.racks)
    )
    """Empty if racks are unknown."""
    ensemble_size: int = field("Ensemble size for which enough bookies must be writable.")
    headroom: int = field("Writable bookies that may fail before an ensemble cannot be formed.")
    """The writable bookies above ``ensemble_size``."""
    autorecovery: autorecovery_admin.Status
    ledgers: int | None = field(
        "Ledgers, if counted.",
        cell=lambda v: "not counted without --ledgers" if v.ledgers is None else str(v.ledgers),
        cell_of_none=True,
        default=None,
    )
    not_closed: int | None = field("Number of ledgers that are not closed.", default=None)
    unmarked: int | None = field(
        "Number of ledgers on a bookie that is not registered, without a mark, if counted.",
        default=None,
        rank=WIDE,
    )
    problems: tuple[str, ...] = field(
        "Problems of the cluster.", cell=lambda v: "\n".join(v.problems) or "none", default=()
    )


@shown("peers", kw_only=True)
class PingAnswer:
    """The answer of one service; ``error`` is empty if it answered.

    ``peer`` is ``metadata`` or a bookie's id.
    """

    peer: str = field("The service that was asked: metadata, or a bookie.")
    kind: str = field("metadata or bookie.", rank=WIDE)
    state: str = field("State of the bookie in the metadata.")
    address: str | None = field("Address that the service listens on.", rank=2, default=None)
    connect_s: float | None = field(
        "Seconds to connect, handshake included.",
        header="CONNECT",
        cell=lambda v: human_latency(v.connect_s),
        default=None,
    )
    answer_s: float | None = field(
        "Seconds to the answer.",
        header="ANSWER",
        cell=lambda v: human_latency(v.answer_s),
        default=None,
    )
    error: str = field(
        "The error, if the service does not answer.", of=lambda v: v.error or None, default=""
    )


# Status -----------------------------------------------------------------------------------------


@attrs.define
class _LedgerCounts:
    """The counts of a walk over all ledgers."""

    ledgers: int = 0
    not_closed: int = 0
    ensemble_max: int = 0
    unmarked: int = 0


def status(session: Session, *, ensemble_size: int, ledgers: bool, fail_if_any: bool) -> None:
    """Print the state of the cluster.

    Raises:
        ProblemsError: the cluster has problems, and ``fail_if_any``.
    """
    bookies = ask_bookies.with_figures(session, ask_bookies.asked_bookies(session, None))
    found = session.call(_status, bookies, ensemble_size, count_ledgers=ledgers)
    session.emit(found)
    if fail_if_any and found.problems:
        session.finish()
        raise ProblemsError(
            f"{counted(len(found.problems), 'problem')}: {'; '.join(found.problems)}",
            next_step="`bkctl doctor` says what repairs them",
        )


async def _status(
    client: Client, bookies: Sequence[BookieSummary], ensemble_size: int, *, count_ledgers: bool
) -> ClusterStatus:
    store = client.store
    identity = await cluster_operations.read_identity(client)
    # Without the layout, ledgers cannot be found.
    walked = await _walk(client) if count_ledgers and identity.layout is not None else None
    if walked is not None:
        ensemble_size = max(ensemble_size, walked.ensemble_max)
    states = Counter(one.state for one in bookies)
    writable = states[BookieState.WRITABLE.value]
    free, total = space([one for one in bookies if one.total is not None])
    found = ClusterStatus(
        uri=store.uri,
        instance_id=identity.instance_id,
        layout=identity.layout,
        writable=writable,
        read_only=states[BookieState.READ_ONLY.value],
        down=states[BookieState.DOWN.value],
        versions=dict(sorted(Counter(one.version for one in bookies if one.version).items())),
        free=free,
        total=total,
        racks=dict(
            sorted(Counter(one.rack for one in bookies if one.rack and one.is_registered).items())
        ),
        ensemble_size=ensemble_size,
        headroom=writable - ensemble_size,
        autorecovery=await autorecovery_admin.status(client),
        ledgers=None if walked is None else walked.ledgers,
        not_closed=None if walked is None else walked.not_closed,
        unmarked=None if walked is None else walked.unmarked,
    )
    domain = client.cluster.placement.domain if found.racks else ""
    unreadable = (*map(str, identity.damaged.values()), *found.autorecovery.unreadable)
    problems = (*unreadable, *_problems(found, bookies, domain))
    return evolve(found, problems=problems)


async def _walk(client: Client) -> _LedgerCounts:
    walked = _LedgerCounts()
    available = await client.store.registered_bookies()
    async for one in walk(client.store):
        walked.ledgers += 1
        if await autorecovery_admin.bookies_without_mark(client.store, one, available):
            walked.unmarked += 1
        if one.metadata is not None and not one.metadata.is_closed:
            walked.not_closed += 1
            walked.ensemble_max = max(walked.ensemble_max, one.metadata.ensemble_size)
    return walked


def _problems(found: ClusterStatus, bookies: Sequence[BookieSummary], domain: str) -> list[str]:
    """Return the problems, the worst first.

    ``domain`` is the placement domain: rack, region or zone.
    """
    silent = sum(bool(one.unreachable) for one in bookies)
    full = sum(
        one.total is not None and one.free is not None and one.free < one.total * (1 - _FULL_AT)
        for one in bookies
    )
    repair = found.autorecovery
    lacking = -found.headroom
    # A region or a zone is the first part of a location.
    apart = {rack if domain == "rack" else rack.split("/")[1] for rack in found.racks}
    ensemble = f"ledgers of an ensemble of {found.ensemble_size}"
    problems = (
        (lacking > 0, f"{counted(lacking, 'writable bookie')} too few for {ensemble}"),
        (repair.marked, f"{counted(repair.marked, 'ledger')} under-replicated"),
        (found.unmarked, lack_marks(found.unmarked or 0)),
        (silent, f"{counted(silent, 'registered bookie')} unreachable"),
        (found.down, f"{counted(found.down, 'bookie')} down"),
        (found.read_only, f"{counted(found.read_only, 'bookie')} read-only"),
        (full, f"{counted(full, 'bookie')} with full disks"),
        (not repair.enabled, "autorecovery is disabled"),
        (repair.enabled and repair.auditor is None, "no auditor is elected"),
        (len(apart) == 1, f"all bookies are in one {domain}"),
    )
    return [words for holds, words in problems if holds]


# Ping -------------------------------------------------------------------------------------------


def ping(session: Session, *, registered: bool) -> None:
    """Print the services that answer, and the seconds to each answer.

    Raises:
        CommandError: a bookie does not answer; status 5.
    """
    with session.waiting_for_bookies():
        found = session.call(pong_of_all, registered=registered, within_s=session.answers_within_s)
    session.emit_all(found, PingAnswer)
    session.finish()
    silent = [one.peer for one in found if one.error]
    if silent:
        raise CommandError(
            f"{len(silent)} of {len(found)} did not answer: {', '.join(silent)}",
            status=ExitStatus.UNREACHABLE,
        )
    slowest = max(found, key=lambda one: one.answer_s or 0.0)
    if len(found) == 1:
        session.note("no bookie is registered")
        return
    session.note(
        f"all {len(found)} answered; the slowest is {slowest.peer} with"
        f" {human_duration(slowest.answer_s or 0.0)}"
    )


async def pong_of_all(client: Client, *, registered: bool, within_s: float) -> list[PingAnswer]:
    """Return the answers of the metadata service and of each bookie, over new connections."""
    import twisted.internet.endpoints  # noqa: F401 -- not within the time of the first connection

    clock = client.cluster.clock
    began_s = clock.seconds()
    await cluster_operations.read_identity(client)
    metadata = PingAnswer(
        peer=METADATA,
        kind=METADATA,
        state="connected",
        address=client.store.uri,
        answer_s=clock.seconds() - began_s,
    )
    listed = await cluster_operations.list_bookies(client)
    wanted = [one for one in listed if one.info is not None or not registered]
    with contextlib.closing(client.cluster.pool.anew()) as pool:
        return [metadata, *await run_together(_pong(pool, one, within_s) for one in wanted)]


async def _pong(pool: BookiePool, one: BookieStatus, within_s: float) -> PingAnswer:
    endpoint = None if one.info is None else one.info.endpoint()
    found = PingAnswer(
        peer=one.bookie_id,
        kind="bookie",
        state=one.state.value,
        address=None if endpoint is None else f"{endpoint.host}:{endpoint.port}",
    )
    if one.state is BookieState.DOWN:
        return evolve(found, error="it is not registered")
    try:
        asked = Deferred.fromCoroutine(_timed_pong(pool, one.bookie_id, found))
        return await cluster_operations.in_time(asked, one.bookie_id, within_s, pool.clock)
    except BookKeeperError as error:
        return evolve(found, error=error_message(error))


async def _timed_pong(pool: BookiePool, bookie_id: BookieId, found: PingAnswer) -> PingAnswer:
    began_s = pool.clock.seconds()
    await pool.channel(bookie_id, LedgerId(0), ProtocolVersion.V3)
    connected_s = pool.clock.seconds()
    await ask_sizes(pool, bookie_id)
    return evolve(
        found,
        connect_s=connected_s - began_s,
        answer_s=pool.clock.seconds() - connected_s,
    )


# Test -------------------------------------------------------------------------------------------


def test(
    session: Session,
    *,
    ensemble_size: int,
    write_quorum: int,
    ack_quorum: int,
    entries: int,
    size: int,
    keep: bool,
    fail_if: Sequence[str],
) -> None:
    """Write a ledger, read it, and delete it unless ``keep``; print the duration of each step.

    Raises:
        ProblemsError: a threshold of ``fail_if`` is exceeded.
    """
    limits = thresholds(fail_if, sanity_checks.ClusterCheck)
    end = "keep" if keep else "delete"
    if session.plans_only([f"write, read and {end} a ledger of {counted(entries, 'entry')}"]):
        return
    found = session.call(
        sanity_checks.check_cluster,
        ensemble_size=ensemble_size,
        write_quorum=write_quorum,
        ack_quorum=ack_quorum,
        entries=entries,
        entry_bytes=size,
        keep=keep,
    )
    session.emit(found)
    limits.require(found)


def _trial(v: ClusterCheck) -> str:
    adds = v.entries / v.add_s if v.add_s else 0.0
    steps = (
        ("create", v.create_s),
        ("add", v.add_s),
        ("read open", v.read_open_s),
        ("close", v.close_s),
        ("read closed", v.read_s),
        ("delete", v.delete_s),
    )
    times = ", ".join(f"{name} {human_latency(took)}" for name, took in steps if took is not None)
    kept = f"; ledger {v.ledger_id} was kept" if v.delete_s is None else ""
    return (
        f"the cluster works: {counted(v.entries, 'entry')} of {human_bytes(v.entry_bytes)} on"
        f" {counted(len(v.ensemble), 'bookie')} ({times}; {adds:.0f} adds/s){kept}"
    )


def _took(name: str, doc: str) -> Column:
    title = name.upper().replace("_", " ")
    return Column(f"{name}_s", doc, header=title)


declare_view(
    ClusterCheck,
    "tests",
    LEDGER,
    Column("ensemble", "Bookies that stored the test ledger."),
    Column("write_quorum", "Copies of each entry."),
    Column("ack_quorum", "Copies before an add is acknowledged."),
    Column("entries", "Number of entries."),
    Column("entry_bytes", "Bytes of each entry."),
    _took("create", "Seconds to create the ledger."),
    _took("add", "Seconds until all entries were confirmed."),
    _took("read_open", "Time to read the entries while the ledger was open."),
    _took("close", "Time to close the ledger."),
    _took("read", "Time to read the entries of the closed ledger."),
    _took("delete", "Time to delete the ledger; null with --keep."),
    sentence=_trial,
)


@shown(
    "switches",
    sentence=lambda v: f"the health check of bookies is {'enabled' if v.enabled else 'disabled'}",
)
class HealthCheck:
    """The cluster's switch: clients may quarantine bookies that fail."""

    enabled: bool = field("Whether clients may put failing bookies into quarantine.")
    changed: bool = field("Whether the command changed the state.")


def switch_health_check(session: Session, *, switch: str | None) -> None:
    """Print or change the cluster's switch for quarantines by clients."""
    if switch is not None and session.plans_only([f"{switch} the health check"]):
        return
    wanted = None if switch is None else switch == "enable"
    session.emit(session.call(health_check, wanted))


async def health_check(client: Client, wanted: bool | None) -> HealthCheck:  # noqa: FBT001  # a value
    """Return the cluster's switch for quarantines by clients, after changing it to ``wanted``."""
    store = client.store
    enabled = await store.health_check_enabled()
    if wanted is None or wanted is enabled:
        return HealthCheck(enabled, changed=False)
    await store.set_health_check_enabled(enabled=wanted)
    return HealthCheck(wanted, changed=True)
