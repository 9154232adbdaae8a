"""What `cluster status`, `ping` and `test` do: ask everybody once, and say what that comes to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import attrs
from twisted.internet.defer import Deferred

from bkclient.admin import cluster_test, operations
from bkclient.admin.ledger_scan import walk
from bkclient.metadata.tree.nodes import together
from bkclient.placement.free_space import ask_sizes
from bkclient.repair import autorecovery
from bkctl.bookies import ask_bookies
from bkctl.commands.autorecovery.audit import delay_text
from bkctl.commands.bookie.details import space
from bkctl.errors import CommandError, ProblemsError, error_message
from bkctl.exit_status import ExitStatus
from bkctl.output.filters import thresholds
from bkctl.output.units import counted, human_duration, human_latency
from bkctl.output.views import WIDE, Kind, column, shown
from wire.codes import ProtocolVersion
from wire.errors import BookKeeperError
from wire.ids import BookieId, LedgerId

if TYPE_CHECKING:
    from bkclient.client import Client
    from bkclient.connection.pool import BookiePool
    from bkctl.bookies.summary import BookieSummary
    from bkctl.session.session import Session

METADATA: Final = "metadata"

_FULL_AT: Final = 0.95


def _counts(found: Mapping[str, int]) -> str:
    return "\n".join(f"{name}: {count}" for name, count in found.items()) or "-"


@shown(
    "clusters",
    column("uri", "The metadata service."),
    column("instance_id", "The cluster's id."),
    column("layout", "Layout of the metadata."),
    column("writable", "Bookies that take adds."),
    column("read_only", "Bookies that only serve reads."),
    column("down", "Bookies with a cookie that are not there."),
    column(
        "versions",
        "How many bookies run what, of those that tell.",
        cell=lambda v: _counts(v.versions),
    ),
    column("free", "Free bytes on all disks, shared ones once.", kind=Kind.BYTES),
    column("total", "Bytes of all disks, shared ones once.", kind=Kind.BYTES),
    column(
        "racks", "How many registered bookies are in each rack.", cell=lambda v: _counts(v.racks)
    ),
    column("ensemble_size", "The ensemble that must find enough bookies."),
    column("headroom", "Writable bookies that may go before an ensemble cannot be made."),
    column("autorecovery", "Whether it is switched on.", "autorecovery.enabled", Kind.FLAG),
    column("auditor", "Who is the auditor.", "autorecovery.auditor"),
    column(
        "delay_s",
        "Seconds that a lost bookie may stay away.",
        "autorecovery.delay_s",
        Kind.COUNT,
        header="DELAY",
        cell=lambda v: delay_text(v.autorecovery.delay_s),
    ),
    column(
        "underreplicated", "Ledgers marked as lacking replicas.", "autorecovery.marked", Kind.COUNT
    ),
    column("being_repaired", "Of these, with a worker.", "autorecovery.being_repaired", Kind.COUNT),
    column("ledgers", "Ledgers, if counted."),
    column("not_closed", "Of these, not closed."),
    column(
        "problems", "What is not as it should be.", cell=lambda v: "\n".join(v.problems) or "none"
    ),
    id="instance_id",
)
@attrs.frozen(kw_only=True)
class ClusterStatus:
    """A cluster as it is now, and what is not as it should be."""

    uri: str
    instance_id: str | None
    layout: str | None
    writable: int
    read_only: int
    down: int
    versions: Mapping[str, int]
    """How many bookies run what; those that do not tell are in none."""
    free: int
    total: int
    """Bytes; disks that bookies share count once."""
    racks: Mapping[str, int]
    """How many registered bookies are in each; empty if racks are unknown."""
    ensemble_size: int
    headroom: int
    """How many writable bookies may go before there are fewer than ``ensemble_size``."""
    autorecovery: autorecovery.Status
    ledgers: int | None = None
    not_closed: int | None = None
    problems: tuple[str, ...] = ()


@shown(
    "peers",
    column("peer", "Who was asked: metadata, or a bookie."),
    column("kind", "metadata or bookie.", rank=WIDE),
    column("state", "What metadata says.", kind=Kind.STATE),
    column("address", "Where it listens.", rank=2),
    column(
        "connect_s",
        "Seconds to connect, handshake included.",
        kind=Kind.SECONDS,
        header="CONNECT",
        cell=lambda v: human_latency(v.connect_s),
    ),
    column(
        "answer_s",
        "Seconds to the answer.",
        kind=Kind.SECONDS,
        header="ANSWER",
        cell=lambda v: human_latency(v.answer_s),
    ),
    column("error", "Why it does not answer.", lambda v: v.error or None),
)
@attrs.frozen(kw_only=True)
class Pong:
    """What came of asking one peer; ``error`` is empty where it answered.

    ``peer`` is ``metadata`` or a bookie's id.
    """

    peer: str
    kind: str
    state: str
    address: str | None = None
    connect_s: float | None = None
    answer_s: float | None = None
    error: str = ""


# Status -----------------------------------------------------------------------------------------


@attrs.define
class _LedgerCounts:
    """What a walk over all ledgers counts."""

    ledgers: int = 0
    not_closed: int = 0
    ensemble_max: int = 0


def status(session: Session, *, ensemble_size: int, ledgers: bool, fail_if_any: bool) -> None:
    """Print how the cluster is.

    Raises:
        ProblemsError: there are problems, and ``fail_if_any``.
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
    identity = await operations.read_identity(client)
    # Without the layout ledgers cannot be found.
    walked = await _walk(client) if count_ledgers and identity.layout is not None else None
    if walked is not None:
        ensemble_size = max(ensemble_size, walked.ensemble_max)
    states = Counter(one.state for one in bookies)
    writable = states[operations.BookieState.WRITABLE.value]
    free, total = space([one for one in bookies if one.total is not None])
    found = ClusterStatus(
        uri=store.uri,
        instance_id=identity.instance_id,
        layout=identity.layout,
        writable=writable,
        read_only=states[operations.BookieState.READ_ONLY.value],
        down=states[operations.BookieState.DOWN.value],
        versions=dict(sorted(Counter(one.version for one in bookies if one.version).items())),
        free=free,
        total=total,
        racks=dict(sorted(Counter(one.rack for one in bookies if one.rack).items())),
        ensemble_size=ensemble_size,
        headroom=writable - ensemble_size,
        autorecovery=await autorecovery.status(client),
        ledgers=None if walked is None else walked.ledgers,
        not_closed=None if walked is None else walked.not_closed,
    )
    domain = client.cluster.placement.domain if found.racks else ""
    unreadable = (*map(str, identity.damaged.values()), *found.autorecovery.unreadable)
    problems = (*unreadable, *_problems(found, bookies, domain))
    return attrs.evolve(found, problems=problems)


async def _walk(client: Client) -> _LedgerCounts:
    walked = _LedgerCounts()
    async for one in walk(client.store):
        walked.ledgers += 1
        if one.metadata is not None and not one.metadata.is_closed:
            walked.not_closed += 1
            walked.ensemble_max = max(walked.ensemble_max, one.metadata.ensemble_size)
    return walked


def _problems(found: ClusterStatus, bookies: Sequence[BookieSummary], domain: str) -> list[str]:
    """Return what is not as it should be, the worst first; bookies are kept apart by ``domain``."""
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
    """Print who answers, and how soon.

    Raises:
        CommandError: a bookie does not; status 5.
    """
    with session.waiting_for_bookies():
        found = session.call(pong_of_all, registered=registered, within_s=session.answers_within_s)
    session.emit_all(found, Pong)
    session.finish()
    silent = [one.peer for one in found if one.error]
    if silent:
        raise CommandError(
            f"{len(silent)} of {len(found)} did not answer: {', '.join(silent)}",
            status=ExitStatus.UNREACHABLE,
        )
    slowest = max(found, key=lambda one: one.answer_s or 0.0)
    session.note(
        f"all {len(found)} answered; the slowest is {slowest.peer} with"
        f" {human_duration(slowest.answer_s or 0.0)}"
    )


async def pong_of_all(client: Client, *, registered: bool, within_s: float) -> list[Pong]:
    """Return the metadata service's answer, and each bookie's, over connections of their own."""
    clock = client.cluster.clock
    began_s = clock.seconds()
    await operations.read_identity(client)
    metadata = Pong(
        peer=METADATA,
        kind=METADATA,
        state="connected",
        address=client.store.uri,
        answer_s=clock.seconds() - began_s,
    )
    listed = await operations.list_bookies(client)
    wanted = [one for one in listed if one.info is not None or not registered]
    pool = client.cluster.pool.anew()
    try:
        return [metadata, *await together(_pong(pool, one, within_s) for one in wanted)]
    finally:
        pool.close()


async def _pong(pool: BookiePool, one: operations.BookieStatus, within_s: float) -> Pong:
    endpoint = None if one.info is None else one.info.endpoint()
    found = Pong(
        peer=one.bookie_id,
        kind="bookie",
        state=one.state.value,
        address=None if endpoint is None else f"{endpoint.host}:{endpoint.port}",
    )
    if one.state is operations.BookieState.DOWN:
        return attrs.evolve(found, error="it is not registered")
    try:
        asked = Deferred.fromCoroutine(_timed_pong(pool, one.bookie_id, found))
        return await operations.in_time(asked, one.bookie_id, within_s, pool.clock)
    except BookKeeperError as error:
        return attrs.evolve(found, error=error_message(error))


async def _timed_pong(pool: BookiePool, bookie_id: BookieId, found: Pong) -> Pong:
    began_s = pool.clock.seconds()
    await pool.channel(bookie_id, LedgerId(0), ProtocolVersion.V3)
    connected_s = pool.clock.seconds()
    await ask_sizes(pool, bookie_id)
    return attrs.evolve(
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
    """Write a ledger, read it, and delete it unless it is to be kept; print how long each took.

    Raises:
        ProblemsError: a threshold of ``fail_if`` is broken.
    """
    limits = thresholds(fail_if, cluster_test.Trial)
    if session.dry_run:
        end = "keep" if keep else "delete"
        session.plan([f"write, read and {end} a ledger of {counted(entries, 'entry')}"])
        return
    found = session.call(
        cluster_test.try_cluster,
        ensemble_size=ensemble_size,
        write_quorum=write_quorum,
        ack_quorum=ack_quorum,
        entries=entries,
        entry_bytes=size,
        keep=keep,
    )
    session.emit(found)
    limits.insist(found)
