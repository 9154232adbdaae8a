"""``/api/v2``: the handlers of the endpoints. They return values and raise errors.

See ``endpoints``.
"""

from __future__ import annotations

import typing
from typing import Any, Final, TypeVar

import attrs

from bookied.admin.control.operations import Control
from bookied.admin.http.requests_and_replies import (
    BadHttpRequestError,
    HttpRequest,
    check_delay,
    number,
)
from bookied.admin.jobs import BackgroundJob
from bookied.admin.v2 import values
from bookied.config.reload import SettingsRefusedError
from wire.ids import BookieId, LedgerId
from wire.ledger_metadata import LedgerMetadata

T = TypeVar("T", bound=attrs.AttrsInstance)

LIMIT: Final = 1000
LIMIT_MAX: Final = 10_000


TEST_ENTRIES: Final = 10


# Bodies -------------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class SetReadOnly:
    """The wanted mode."""

    read_only: bool


@attrs.frozen(kw_only=True)
class Collect:
    """The compactions that may follow a collection."""

    major: bool = True
    minor: bool = True


@attrs.frozen(kw_only=True)
class SetConfig:
    """A setting by its Java key, and its value as in a settings file."""

    key: str
    value: str


@attrs.frozen(kw_only=True)
class CompactLocations:
    """The database to rewrite; all without it."""

    path: str | None = None


@attrs.frozen(kw_only=True)
class SetCompaction:
    """The compactions to suspend (true) or resume (false); others are unchanged."""

    minor_suspended: bool | None = None
    major_suspended: bool | None = None


@attrs.frozen(kw_only=True)
class SetAutorecovery:
    """The values to change; others are unchanged."""

    enabled: bool | None = None
    lost_bookie_recovery_delay_s: int | None = None


@attrs.frozen(kw_only=True)
class Recover:
    """The bookie whose replicas are copied; its cookie is deleted afterwards if requested."""

    bookie_id: str
    skip_open: bool = False
    delete_cookie: bool = False


@attrs.frozen(kw_only=True)
class Decommission:
    """The bookie to take out; its cookie is kept if requested."""

    bookie_id: str
    keep_cookie: bool = False


def body_of(asked: HttpRequest, kind: Any) -> Any:
    """Return the body as a value of ``kind``; an empty body has only defaults.

    Raises:
        BadHttpRequestError: the body does not match ``kind``.
    """
    body = asked.object if asked.body.strip() else {}
    hints = typing.get_type_hints(kind)
    unknown = body.keys() - hints.keys()
    if unknown:
        raise BadHttpRequestError(f"unknown: {', '.join(sorted(unknown))}")
    for name, value in body.items():
        allowed = typing.get_args(hints[name]) or (hints[name],)
        if type(value) not in allowed:
            raise BadHttpRequestError(f"{name} is not of type {allowed[0].__name__}: {value!r}")
    missing = [
        one.name
        for one in attrs.fields(kind)
        if one.default is attrs.NOTHING and one.name not in body
    ]
    if missing:
        raise BadHttpRequestError(f"missing: {', '.join(missing)}")
    return kind(**body)


# The bookie ---------------------------------------------------------------------------------------


def summary(control: Control, _asked: HttpRequest) -> values.BookieReport:
    """The state of the bookie."""
    return control.summary()


def ready(control: Control, _asked: HttpRequest) -> values.Readiness:
    """Readiness, for probes: the bookie is registered and serves."""
    return values.Readiness(ready=control.is_ready, state=control.summary().state)


def read_only(control: Control, _asked: HttpRequest) -> values.ReadOnly:
    """The mode: read-only or not."""
    found = control.summary()
    return values.ReadOnly(read_only=found.read_only, by_hand=found.read_only_by_hand)


async def set_read_only(
    control: Control, asked: HttpRequest, wanted: SetReadOnly
) -> values.ReadOnly:
    """Make the bookie read-only, or end that. Full disks keep it read-only."""
    await control.set_read_only(read_only=wanted.read_only)
    return read_only(control, asked)


def settings(control: Control, _asked: HttpRequest) -> values.Settings:
    """Every setting as text, by its key. Secrets are masked."""
    return control.settings()


async def setting_origins(control: Control, _asked: HttpRequest) -> values.Settings:
    """The source of each value in effect, by its key: a line of a file, ..., default."""
    return await control.setting_origins()


def set_config(control: Control, _asked: HttpRequest, wanted: SetConfig) -> values.Settings:
    """Change a setting that takes effect at once, until the settings are read again."""
    try:
        control.change_settings({wanted.key: wanted.value})
    except SettingsRefusedError as error:
        raise BadHttpRequestError(str(error)) from error
    return control.settings()


def disks(control: Control, _asked: HttpRequest) -> tuple[values.Disk, ...]:
    """The free space of its directories, at the last check."""
    full = control.disks.full()
    return tuple(
        values.Disk(
            directory=str(one.directory.parent),
            total_bytes=one.total_bytes,
            free_bytes=one.usable_bytes,
            used=round(one.used, 5),
            full=one.directory in full,
        )
        for one in control.disks.samples()
    )


async def marks(control: Control, _asked: HttpRequest) -> tuple[values.JournalMark, ...]:
    """The position in each journal where a replay would begin, by the marks on disk."""
    found = await control.disks.last_marks()
    return tuple(values.JournalMark(journal_id=one[0], offset=one[1]) for one in found)


async def test(control: Control, _asked: HttpRequest) -> values.SanityCheck:
    """Write a ledger to this bookie only, read it back and delete it."""
    return await control.test(TEST_ENTRIES)


async def expand_storage(control: Control, _asked: HttpRequest) -> values.AddedDirectories:
    """Write the cookie into new, empty directories of the settings file."""
    return values.AddedDirectories(added=await control.expand_storage())


# Garbage ------------------------------------------------------------------------------------------


def collections(control: Control, _asked: HttpRequest) -> tuple[values.Collection, ...]:
    """The state of garbage collection, one for each storage."""
    return tuple(
        _shown_as(
            values.Collection,
            one,
            running=one.is_running,
            forced=one.is_forced,
            compacting=None if one.compacting is None else one.compacting.value,
        )
        for one in control.garbage.collections()
    )


def collect(control: Control, _asked: HttpRequest, wanted: Collect) -> values.AcceptedTask:
    """Collect garbage now, with the compaction that the settings allow."""
    control.garbage.collect(major=wanted.major, minor=wanted.minor)
    return values.AcceptedTask()


def compaction(control: Control, _asked: HttpRequest) -> values.Compaction:
    """The compactions that an operator has suspended."""
    now = control.garbage.suspended
    return values.Compaction(minor_suspended=now.minor, major_suspended=now.major)


def set_compaction(
    control: Control, asked: HttpRequest, wanted: SetCompaction
) -> values.Compaction:
    """Suspend compactions until the next start, or resume them."""
    control.garbage.suspend(minor=wanted.minor_suspended, major=wanted.major_suspended)
    return compaction(control, asked)


def locations(control: Control, _asked: HttpRequest) -> tuple[values.LocationDatabase, ...]:
    """The databases of DbLedgerStorage with the locations of entries."""
    return tuple(
        values.LocationDatabase(path=path, compacting=compacting)
        for path, compacting in control.garbage.locations().items()
    )


def compact_locations(
    control: Control, asked: HttpRequest, wanted: CompactLocations
) -> tuple[values.LocationDatabase, ...]:
    """Rewrite one location database, or all, without deleted records."""
    path = wanted.path
    if path is not None and path not in control.garbage.locations():
        raise BadHttpRequestError(f"there is no database {path}")
    control.garbage.compact_locations(control.garbage.locations() if path is None else [path])
    return locations(control, asked)


# Ledgers ------------------------------------------------------------------------------------------


async def ledgers(control: Control, asked: HttpRequest) -> values.LedgerPage:
    """The ledgers of the cluster, ascending."""
    after = asked.query.get("after")
    limit = min(LIMIT_MAX, number(asked.query.get("limit", str(LIMIT)), "limit"))
    if not limit:
        raise BadHttpRequestError("limit is 0; give 1 or more")
    found: list[int] = []
    ids = control.cluster.ledger_ids(
        after=None if after is None else LedgerId(number(after, "after"))
    )
    async for ledger_id in ids:
        if len(found) == limit:
            return values.LedgerPage(ledgers=tuple(found), next_after=found[-1])
        found.append(ledger_id)
    return values.LedgerPage(ledgers=tuple(found), next_after=None)


async def ledger(control: Control, asked: HttpRequest) -> values.Ledger:
    """A ledger's metadata, without its password."""
    ledger_id = LedgerId(number(asked.path["ledger_id"], "ledger_id"))
    return _ledger(ledger_id, await control.cluster.metadata(ledger_id))


def _ledger(ledger_id: LedgerId, metadata: LedgerMetadata) -> values.Ledger:
    return _shown_as(
        values.Ledger,
        metadata,
        ledger_id=ledger_id,
        state=metadata.state.name,
        digest_type=metadata.digest_type.name if metadata.digest_type is not None else None,
        fragments=tuple(
            values.Fragment(first_entry_id=one.first_entry_id, ensemble=tuple(one.ensemble))
            for one in metadata.fragments
        ),
    )


# The cluster --------------------------------------------------------------------------------------


async def cluster(control: Control, _asked: HttpRequest) -> values.ClusterSummary:
    """Number of bookies, and the auditor."""
    return await control.cluster.summary()


async def bookies(control: Control, _asked: HttpRequest) -> tuple[values.KnownBookie, ...]:
    """Every bookie that is registered or has a cookie."""
    return tuple(
        values.KnownBookie(bookie_id=bookie_id, state=state, host=host)
        for bookie_id, state, host in await control.cluster.bookies()
    )


async def autorecovery(control: Control, _asked: HttpRequest) -> values.Autorecovery:
    """The state of repair in the cluster's metadata."""
    store = control.cluster.store
    return values.Autorecovery(
        enabled=await store.replication_enabled(),
        auditor=await store.current_auditor(),
        lost_bookie_recovery_delay_s=await store.lost_bookie_recovery_delay(),
    )


async def set_autorecovery(
    control: Control, asked: HttpRequest, wanted: SetAutorecovery
) -> values.Autorecovery:
    """Enable or disable repair in the whole cluster, or set its delay."""
    delay_s = wanted.lost_bookie_recovery_delay_s
    if delay_s is not None:
        check_delay(delay_s, "lost_bookie_recovery_delay_s")
        await control.cluster.store.set_lost_bookie_recovery_delay(delay_s)
    if wanted.enabled is not None:
        await control.cluster.set_replication_enabled(enabled=wanted.enabled)
    return await autorecovery(control, asked)


async def underreplicated(
    control: Control, asked: HttpRequest
) -> tuple[values.UnderreplicatedLedger, ...]:
    """The ledgers that wait for repair."""
    limit = min(LIMIT_MAX, number(asked.query.get("limit", str(LIMIT)), "limit"))
    found = await control.cluster.underreplicated(limit=limit)
    return tuple(
        values.UnderreplicatedLedger(
            ledger_id=ledger_id, missing=mark.missing, problem=mark.problem
        )
        for ledger_id, mark in found.items()
    )


def failures(control: Control, _asked: HttpRequest) -> tuple[values.RepairFailure, ...]:
    """The ledgers that the worker of this process could not repair, oldest first."""
    return tuple(
        values.RepairFailure(ledger_id=ledger_id, at_ms=int(at_s * 1000), why=why)
        for ledger_id, (at_s, why) in control.cluster.repair_failures().items()
    )


async def audit(control: Control, _asked: HttpRequest) -> values.AuditAsked:
    """Start an audit for lost bookies now."""
    return values.AuditAsked(auditor=await control.cluster.trigger_audit())


# Jobs ---------------------------------------------------------------------------------------------


async def recover(control: Control, _asked: HttpRequest, wanted: Recover) -> values.Job:
    """Start a job that copies the replicas of a bookie to others."""
    bookie_id = _bookie_id(wanted.bookie_id)
    if wanted.delete_cookie:
        await control.repairs.require_gone(bookie_id)
    return _job(
        control.repairs.recover(
            bookie_id, skip_open=wanted.skip_open, delete_cookie=wanted.delete_cookie
        )
    )


async def decommission(control: Control, _asked: HttpRequest, wanted: Decommission) -> values.Job:
    """Start a job that takes a stopped bookie out; the cluster's workers copy its replicas."""
    bookie_id = _bookie_id(wanted.bookie_id)
    await control.repairs.require_gone(bookie_id)
    return _job(control.repairs.decommission(bookie_id, keep_cookie=wanted.keep_cookie))


def _bookie_id(text: str) -> BookieId:
    if not text:
        raise BadHttpRequestError("bookie_id is empty")
    return BookieId(text)


def jobs(control: Control, _asked: HttpRequest) -> tuple[values.Job, ...]:
    """Jobs of this process, running or ended; the newest first."""
    return tuple(map(_job, control.repairs.jobs.all()))


def job(control: Control, asked: HttpRequest) -> values.Job:
    """The state of one job."""
    return _job(control.repairs.jobs.get(number(asked.path["job_id"], "job_id")))


def cancel_job(control: Control, asked: HttpRequest) -> values.Job:
    """Stop a job at a safe point."""
    return _job(control.repairs.jobs.cancel(number(asked.path["job_id"], "job_id")))


def _job(one: BackgroundJob) -> values.Job:
    return _shown_as(values.Job, one, job_id=one.number, state=one.state.value)


def _shown_as(kind: type[T], one: object, **others: Any) -> T:
    """Return ``one`` as a value of ``kind``: its attributes of the same names, and ``others``."""
    names = {field.name for field in attrs.fields(kind)} - others.keys()
    return kind(**{name: getattr(one, name) for name in names}, **others)
