"""`bkctl doctor`: reads the cluster's state once, and prints the findings of the rules."""

from __future__ import annotations

import shlex
import time
from collections.abc import Awaitable, Callable, Collection, Iterable
from pathlib import Path
from typing import Final, TypeVar

import attrs

from bkclient.admin import cluster_operations
from bkclient.admin import cookies as stored_cookies
from bkclient.admin.ledger_scan import walk
from bkclient.client import Client
from bkclient.config.findings import ConfigError, Findings, Severity
from bkclient.errors import NoSuchLedgerError
from bkclient.metadata.errors import UNREADABLE, MetadataAccessError
from bkclient.metadata.stored_values import BookieState
from bkclient.metadata.tree.store import MetadataStore
from bkclient.metadata.versions_and_watches import DamagedMark, MarkError, Version
from bkclient.placement.rack_script import ScriptError
from bkclient.replication import autorecovery_admin
from bkclient.replication.ledger_verification import lost_ledgers
from bkctl.bookies import ask_bookies, directories, load_rates
from bkctl.bookies.bookie_columns import BookieSummary
from bkctl.bookies.http import bookie_state
from bkctl.bookies.http.admin_client import AdminClient
from bkctl.bookies.rack_losses import RackLosses
from bkctl.bookies.stopped_bookie import StoppedBookie, is_registered, stopped_bookie
from bkctl.commands.doctor.columns import ClusterFinding
from bkctl.commands.doctor.emptied_bookies import emptied_bookies, local_bookies
from bkctl.commands.doctor.logs_with_lost_ledgers import damaged_logs, ledgers_of_logs
from bkctl.commands.doctor.rules.diagnosis import diagnose, rules_for
from bkctl.commands.doctor.survey_values import (
    ClusterSurvey,
    DoctorLimits,
    LedgerCensus,
    LocalSurvey,
)
from bkctl.commands.local.directory import directory_in_use, holds_cluster
from bkctl.commands.settings.config_files import side_of_file
from bkctl.errors import ProblemsError, WarningsError
from bkctl.output.units import counted
from bkctl.output.views import evolve
from bkctl.session.session import Session
from bookied.config.bookie import load_bookie_config
from bookied.directories.bookie_id import HostNames, RealHost
from bookied.directories.cookie_check import master_cookie
from bookied.directories.disk_fullness import DiskLimits
from bookied.directories.lock import LOCK
from bookied.directories.roots import CURRENT, VERSION, Directories
from bookied.directories.using_processes import uses
from bookied.errors import CorruptError, StorageKindError
from bookied.offline.bookie import OfflineBookie
from bookied.offline.check.findings import Findings as DiskFindings
from bookied.offline.check.start import check_start
from bookied.storage.files.files import RealFiles
from bookied.storage.storage_class_check import check_kind
from wire.errors import BookKeeperError, FormatError
from wire.ids import BookieId, LedgerId
from wire.records.cookie import Cookie, cookie_differences, decode_cookie

T = TypeVar("T")

REPORT_EVERY: Final = 1000
"""Ledgers between two updates of the progress display."""

_BAD: Final = {Severity.LOSS, Severity.RISK}


def examine(
    session: Session, *, local: bool | None, stale_s: float, open_s: float, full_at: float
) -> None:
    """Run the rules for a cluster, and for the bookie of the settings if ``local``.

    Raises:
        ProblemsError, WarningsError: the rules found problems.
    """
    session.reminds = False  # A finding says the same as the reminder.
    wanted = _names_bookie(session) if local is None else local
    run(session, DoctorLimits(stale_s=stale_s, open_s=open_s, full_at=full_at), local=wanted)


def _names_bookie(session: Session) -> bool:
    """Return whether `-c` names a bookie's settings; a client's settings only name the cluster."""
    options = session.options
    is_named = options.conf is not None and not options.is_of_profile("conf")
    return is_named and side_of_file(session) == "bookie"


def run(session: Session, limits: DoctorLimits, *, local: bool) -> None:
    """Print the findings.

    Raises:
        ProblemsError: a finding is a loss or a risk.
        WarningsError: a finding is trouble, but not a loss or a risk.
    """
    topology_error = None
    try:
        asked = ask_bookies.asked_bookies(session, None)
    except ScriptError as error:
        topology_error = error
        asked = ask_bookies.asked_bookies(session, None, with_racks=False)
    bookies = [_with_address(one) for one in asked]
    what = "looking at ledgers"
    with session.progress(what, unit="ledgers") as progress, session.messages.waiting(what):
        now_ms = int(time.time() * 1000)
        cluster = session.call(examine_cluster, bookies, limits, now_ms, progress.update)
    with session.waiting_for_bookies():
        cluster = attrs.evolve(
            cluster,
            addresses=addresses(cluster.bookies, RealHost()),
            read_only_by_hand=read_only_by_hand(cluster.bookies),
            topology_error=topology_error,
            local_directory=_local_directory(session),
        )
    seen_local = examine_local(session, now_ms) if local else None
    emptied = {}
    if seen_local is not None and seen_local.is_emptied:
        emptied[seen_local.bookie_id] = seen_local.conf
    local_confs = {}
    if cluster.local_directory is not None:
        local_confs = local_bookies(Path(cluster.local_directory))
        emptied |= emptied_bookies(local_confs)
    cluster = attrs.evolve(
        cluster,
        emptied=emptied,
        examined=None if seen_local is None else seen_local.bookie_id,
        local_bookies=frozenset(local_confs),
    )
    found = diagnose(cluster, seen_local)
    found = session.emitter.selected(found, ClusterFinding)  # Hidden findings have no status.
    session.emit_all(found, ClusterFinding)
    session.finish()
    if any("bkctl " in one.fix for one in found) and session.options.is_typed("service_uri"):
        uri = shlex.join(["-u", session.uri])
        session.note(f"(the commands above work on this cluster with {uri} after bkctl)")
    _conclude(session, found, cluster)


def _local_directory(session: Session) -> str | None:
    """Return the directory of a cluster of `bkctl local`, or None for other clusters."""
    if session.options.used_profile and (known := directory_in_use(session.host.environ)):
        return known
    scheme, _, path = session.uri.partition("://")
    directory = Path(path).parent
    return str(directory) if scheme == "sqlite" and holds_cluster(directory) else None


def _conclude(session: Session, found: list[ClusterFinding], cluster: ClusterSurvey) -> None:
    looked = (
        f"looked at {counted(len(cluster.bookies), 'bookie')} and "
        f"{counted(cluster.ledgers.total, 'ledger')} by {len(rules_for(cluster))} rules"
    )
    ends = cluster.ledgers.ends_read
    read = (
        f"Only the first and last entries of {counted(ends, 'ledger')} were read; "
        if ends
        else "No entries were read, because no closed ledger has all its bookies in service; "
    ) + "`bkctl ledger verify --all` reads all entries and finds lost ones between them"
    bad = sum(one.severity in _BAD for one in found)
    troubles = sum(one.severity is Severity.TROUBLE for one in found)
    of_trouble = f"{counted(troubles, 'finding')} of trouble"
    if bad or troubles:
        session.note(f"{looked}. {read}")
    if bad:
        more = f", {of_trouble}" if troubles else ""
        raise ProblemsError(f"{counted(bad, 'finding')} of loss or risk{more}")
    if troubles:
        raise WarningsError(of_trouble)
    notes = f"{counted(len(found), 'note')}, and " if found else ""
    among = " that matches --filter" if session.options.filters else ""
    session.note(f"{looked}: {notes}no problem found{among}. {read}")


# The cluster ------------------------------------------------------------------------------------


def _with_address(one: BookieSummary) -> BookieSummary:
    if one.is_registered and one.address is None:
        return evolve(one, unreachable="it has registered no address that can be read")
    return one


def read_only_by_hand(bookies: Iterable[BookieSummary]) -> frozenset[BookieId]:
    """Ask read-only bookies over HTTP; return those that an operator made read-only. Blocks."""

    def ask(one: BookieSummary) -> bool:
        assert one.http is not None
        try:
            admin = AdminClient(*one.http, timeout_s=ask_bookies.FIGURES_TIMEOUT_S)
            return bookie_state.state(admin, one.bookie_id).read_only_by_hand is True
        except BookKeeperError:
            return False

    asked = [
        one
        for one in bookies
        if one.http and not one.unreachable and one.state == BookieState.READ_ONLY.value
    ]
    found = load_rates.run_in_threads(
        ask, asked, within_s=ask_bookies.FIGURES_TIMEOUT_S, late=False
    )
    return frozenset(one.bookie_id for one, by_hand in zip(asked, found, strict=True) if by_hand)


async def examine_cluster(
    client: Client,
    bookies: Collection[BookieSummary],
    limits: DoctorLimits,
    now_ms: int,
    report: Callable[[int], None],
) -> ClusterSurvey:
    """Return the survey of a cluster with these bookies; walks over all ledgers.

    The first and last entries of at most ``ENDS_READ_MAX`` closed ledgers are read.
    """
    store, found = client.store, _Readings()
    identity = await cluster_operations.read_identity(client)
    for node, error in identity.damaged.items():
        found.note(
            error,
            f"store the node {node} again with the metadata service's own tools; "
            "a backup of `bkctl cluster backup` has its value",
        )
    marks = await found.read(_marks(client, found.note_mark), ())
    ledgers = LedgerCensus(
        now_ms=now_ms,
        in_service=frozenset(one.bookie_id for one in bookies if one.is_registered),
        marks={mark.ledger_id: mark for mark in marks},
        limits=limits,
        rack_losses=RackLosses.of(bookies),
        silent=frozenset(one.bookie_id for one in bookies if one.unreachable and not one.refuses),
    )
    has_ledgers = identity.layout is not None  # Without a layout, ledgers cannot be found.
    logs = await _look_at_ledgers(client, ledgers, found, report) if has_ledgers else ()
    cookies = await stored_cookies.list_cookies(client)
    return ClusterSurvey(
        now_ms=now_ms,
        limits=limits,
        instance_id=identity.instance_id,
        bookies=tuple(bookies),
        cookies={one.bookie_id: one.cookie for one in cookies},
        enabled=await store.replication_enabled(),
        pause=await found.read(autorecovery_admin.current_pause(client), None),
        auditor=await found.read(store.current_auditor(), None),
        delay_s=await found.read(
            store.lost_bookie_recovery_delay(), None, "bkctl autorecovery delay 0"
        ),
        health_check=await store.health_check_enabled(),
        checked_ms={
            check: await found.read(
                store.check_time(check), None, f"bkctl autorecovery audit --check {check}"
            )
            for check in autorecovery_admin.CHECKS
        },
        damaged=found.damaged,
        damaged_logs=logs,
        marks=marks,
        locks=tuple(await found.read(store.repair_locks(), [])),
        ledgers=ledgers,
        has_ledgers=has_ledgers,
        stuck=tuple(await _stuck(client, ledgers.recovering)),
    )


class _Readings:
    """A reader of the metadata that notes unreadable values and their repairs."""

    def __init__(self) -> None:
        self.damaged: dict[str, str] = {}
        """The repair for each error, by the error's text."""

    def note(self, error: Exception, fix: str) -> None:
        self.damaged[str(error)] = error.hint if isinstance(error, MetadataAccessError) else fix

    def note_mark(self, ledger_id: LedgerId, error: MarkError) -> None:
        self.note(error, f"bkctl autorecovery forget {ledger_id}")

    async def read(self, reading: Awaitable[T], otherwise: T, fix: str = "") -> T:
        """Return the stored value, or ``otherwise`` if it cannot be read."""
        try:
            return await reading
        except UNREADABLE as error:
            self.note(error, fix)
            return otherwise


async def _look_at_ledgers(
    client: Client, ledgers: LedgerCensus, found: _Readings, report: Callable[[int], None]
) -> tuple[str, ...]:
    """Count all ledgers, and read the ends of some; return the logs that have lost a ledger."""
    listed = await found.read(ledgers_of_logs(client), {})
    unseen = {one for some in listed.values() for one in some or ()}
    await found.read(_count(client.store, ledgers, report, unseen), None)
    logs = await found.read(damaged_logs(client, listed, unseen), ())
    async for step in lost_ledgers(client, ledgers.to_read()):
        ledgers.ends_read = step.looked_at
        for some, ledger_ids in ((ledgers.lost, step.lost), (ledgers.bad_copies, step.bad)):
            for ledger_id in ledger_ids:
                ledgers.add_read(ledger_id, some)
    return logs


async def _marks(client: Client, damaged: DamagedMark) -> tuple[autorecovery_admin.Mark, ...]:
    return tuple([mark async for mark in autorecovery_admin.list_marks(client, damaged)])


async def _count(
    store: MetadataStore,
    ledgers: LedgerCensus,
    report: Callable[[int], None],
    unseen: set[LedgerId],
) -> None:
    """Count the ledgers; remove existing ledgers from ``unseen``."""
    async for ledger in walk(store):
        ledgers.add(ledger)
        unseen.discard(ledger.ledger_id)
        if ledgers.total % REPORT_EVERY == 0:
            report(ledgers.total)
    report(ledgers.total)


async def _stuck(client: Client, recovering: dict[LedgerId, Version]) -> list[LedgerId]:
    """Return the ledgers whose metadata has not changed since the walk found them in recovery."""
    stuck = []
    for ledger_id, version in recovering.items():
        try:
            stored = await client.read_metadata(ledger_id)
        except NoSuchLedgerError:
            continue
        if stored.version == version:
            stuck.append(ledger_id)
    return stuck


def addresses(bookies: Iterable[BookieSummary], host: HostNames) -> dict[str, str]:
    """Return the addresses of host names, if a bookie that is down may have another's address.

    Blocks. A name that does not resolve maps to itself.
    """
    seen = tuple(bookies)
    down = [one.bookie_id.rpartition(":")[0] for one in seen if not one.is_registered]
    if not any(down):
        return {}

    def resolve(name: str) -> str:
        try:
            return host.resolve(name)
        except OSError:
            return name

    names = list(dict.fromkeys((*down, *(one.host for one in seen))))
    found = load_rates.run_in_threads(
        resolve, names, within_s=ask_bookies.FIGURES_TIMEOUT_S, late=""
    )
    return {name: address or name for name, address in zip(names, found, strict=True)}


# The bookie on this machine ---------------------------------------------------------------------


def examine_local(session: Session, now_ms: int) -> LocalSurvey:
    """Return the survey of the bookie of the settings; changes nothing.

    Raises:
        UsageError: no settings name a bookie.
        ConfigError, AddressError: the settings do not name the bookie's directories or its id.
    """
    bookie = stopped_bookie(session)
    session.about = ""
    found = bookie.found
    files = RealFiles()
    missing = tuple(root for root in found.roots if not (root / CURRENT).is_dir())
    version_file, cookie = _local_cookie(found)
    instance_id = session.call(lambda client: client.store.instance_id())
    master = master_cookie(bookie.config, bookie.bookie_id, instance_id)
    stored = _stored_cookie(bookie)
    limits = DiskLimits.of(bookie.config)
    offline = OfflineBookie(files, found)
    return LocalSurvey(
        conf=session.options.conf or "FILE",
        bookie_id=bookie.bookie_id,
        is_registered=session.call(is_registered, bookie.bookie_id),
        is_at_work=any(use.is_used for use in uses(found.roots)),
        settings=_settings(session),
        missing=missing,
        has_no_directory=len(missing) == len(found.roots),
        cookie=cookie,
        stored=stored,
        differs=() if cookie is None else tuple(cookie_differences(master, cookie)),
        stored_differs=() if stored is None else tuple(cookie_differences(master, stored)),
        version_file=version_file,
        problems=()
        if missing
        else tuple(check_start(offline, DiskFindings(), lambda _done, _left: None)),
        storage_kind="" if missing else _storage_kind(bookie),
        disks=_disks(found),
        warn_at=limits.warn_at,
        full_at=limits.full_at,
        newest_ms=_newest_ms(found),
        now_ms=now_ms,
    )


def _local_cookie(found: Directories) -> tuple[Path | None, Cookie | None]:
    """Return the first readable cookie; cookies that differ from it are findings."""
    for directory in found.all_dirs:
        try:
            return directory / VERSION, decode_cookie(RealFiles().read(directory / VERSION))
        except (OSError, FormatError):
            continue
    return None, None


def _stored_cookie(bookie: StoppedBookie) -> Cookie | None:
    found = bookie.stored.read()
    try:
        return None if found is None else decode_cookie(found.value)
    except FormatError:
        return None  # The finding about the cluster's cookies reports it.


def _settings(session: Session) -> Findings:
    """Return findings about the settings, also about settings that are refused."""
    try:
        return load_bookie_config(directories.bookie_properties(session, ()))[1]
    except ConfigError as error:
        return error.findings


def _storage_kind(bookie: StoppedBookie) -> str:
    try:
        check_kind(RealFiles(), bookie.config.storage_class, bookie.found.index_dirs)
    except (StorageKindError, CorruptError, OSError) as error:
        return str(error)
    return ""


def _disks(found: Directories) -> dict[Path, float]:
    used = {}
    for root in dict.fromkeys((*found.journals, *found.ledgers, *found.indexes)):
        try:
            total, usable = RealFiles().disk_usage(root)
        except OSError:
            continue  # Reported as missing.
        used[root] = 1 - usable / total if total else 0.0
    return used


def _newest_ms(found: Directories) -> int:
    """Return the modification time of the newest file directly in the directories."""
    newest_s = 0.0
    for directory in found.all_dirs:
        try:
            times = [path.stat().st_mtime for path in directory.iterdir() if path.name != LOCK]
        except OSError:
            continue
        newest_s = max([newest_s, *times])
    return int(newest_s * 1000)
