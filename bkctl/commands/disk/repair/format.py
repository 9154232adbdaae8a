"""`disk format` and `disk init`: the steps between parsed options and printed values."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Final

import attrs

from bkclient.admin.ledger_scan import IDS_AT_ONCE, read_ledgers
from bkclient.client import Client
from bkclient.quorum.fragments import is_only_copy
from bkclient.replication.recover_bookies import ledgers_on_bookies
from bkctl.bookies.stopped_bookie import (
    StoppedBookie,
    lock_or_make,
    refuse_other_owner,
    refuse_registered,
    repeatable,
    stamp,
    stopped_bookie,
    warn_damage,
)
from bkctl.errors import RefusedError
from bkctl.output.units import counted, human_bytes
from bkctl.output.views import BOOKIE, field, shown
from bkctl.session.safety_check_names import ONLY_COPIES
from bkctl.session.safety_checks import Objection, refuse_unless_forced, some_names
from bkctl.session.session import Session
from bookied.directories.lock import LOCK
from bookied.directories.roots import CURRENT, prepare
from bookied.errors import BadCookieError, CorruptError, DirectoryError
from bookied.offline.bookie import OfflineBookie
from bookied.offline.entry_logs import summarize
from bookied.offline.files import log_files
from bookied.offline.index import entries_of
from bookied.offline.journal_tail import JournalTail, PendingLedger, records_of
from bookied.offline.repair.format import Contents, contents, wipe
from bookied.offline.repair.old_layout import read_cookie
from bookied.storage.entrylog.format import log_id, split_location
from bookied.storage.files.files import RealFiles
from wire.ids import BookieId, LedgerId

METADATA: Final = "metadata"
"""The safety check that needs the metadata service."""


def bookieformat(
    session: Session,
    *,
    non_interactive: bool,
    java_force: bool,
    override: Collection[str],
    delete_cookie: bool,
) -> None:
    """Remove all data of a stopped bookie: `disk format` with Java's options."""
    session.options.no_input |= non_interactive
    session.options.yes |= java_force
    format_bookie(session, delete_cookie=delete_cookie, force=override, option="--override")


def _formatted(v: FormattedBookie) -> str:
    cookie = (
        "no cookie of it is stored any more"
        if v.cookie_removed
        else f"a stored cookie stays; `bkctl cookie delete {v.bookie_id}` lets a new bookie start"
    )
    return (
        f"bookie {v.bookie_id} formatted: {counted(v.files, 'file')} and "
        f"{counted(v.ledgers, 'ledger')} removed "
        f"({human_bytes(v.size_bytes)}); {cookie}"
    )


@shown("formats", sentence=_formatted)
class FormattedBookie:
    """A bookie whose directories were emptied."""

    bookie_id: BookieId = field(BOOKIE)
    directories: tuple[str, ...] = field("Directories of the bookie.")
    files: int = field("Files removed.")
    size_bytes: int = field("Bytes removed.", name="size")
    ledgers: int = field("Number of ledgers in the bookie's indexes.")
    cookie_removed: bool = field("Whether the stored cookie is gone.")


def _initialized(v: InitializedBookie) -> str:
    if v.written:
        return f"bookie {v.bookie_id}: directories made, cookie stored; it can be started"
    return f"bookie {v.bookie_id}: a new bookie can begin here"


@shown("bookies", sentence=_initialized)
class InitializedBookie:
    """A new bookie that can start; ``written`` if its directories and cookie were made."""

    bookie_id: BookieId = field(BOOKIE)
    directories: tuple[str, ...] = field("Directories of the bookie.")
    written: bool = field("Whether directories and cookie are made.")


@attrs.define
class _DeletedContents:
    roots: list[Contents]
    ledgers: list[int] = attrs.field(factory=list)
    """The ledgers in the indexes."""
    entries: int = 0
    """The number of entries in the indexes whose entry logs exist."""
    damaged: int = 0
    only_in_journals: dict[int, int] = attrs.field(factory=dict)
    """For each ledger, the number of entries that are in journals but in no index."""
    only_in_logs: list[int] = attrs.field(factory=list)
    """The ledgers in entry logs that no index lists: their index is lost, or they were deleted."""
    only_here: list[int] | None = None
    """The ledgers of which no other bookie may have copies; None if the metadata was not read."""
    listed_by: list[int] = attrs.field(factory=list)
    """The ledgers whose metadata lists the bookie, with or without entries on its disks."""

    def lost(self) -> list[str]:
        """Return one line for each part of the data that would be deleted."""
        ledgers = counted(len(self.ledgers), "ledger")
        at_least = "at least " if self.damaged else ""
        lines = [
            f"{one.root}: {counted(one.files, 'file')}, {human_bytes(one.size_bytes)}"
            for one in self.roots
        ]
        lines.append(f"{ledgers} with {at_least}{counted(self.entries, 'entry')}")
        return [*lines, *self._unindexed()]

    def _unindexed(self) -> Iterator[str]:
        if self.only_in_logs:
            yield (
                f"entries of {counted(len(self.only_in_logs), 'ledger')} in entry logs that no "
                f"index lists: {some_names(self.only_in_logs)}"
            )
        if self.only_in_journals:
            entries = counted(sum(self.only_in_journals.values()), "entry")
            yield (
                f"{entries} of {counted(len(self.only_in_journals), 'ledger')} that are only in "
                f"the journals: {some_names(self.only_in_journals)}"
            )

    def remarks(self) -> list[str]:
        """Return warnings about the deletion."""
        remarks = []
        if self.damaged:
            remarks.append(
                f"the index of {counted(self.damaged, 'ledger')}, or all of it, is damaged"
            )
        if self.only_here is None:
            remarks.append("the command did not check whether other bookies have copies")
        if self.listed_by:
            remarks.append(
                f"{counted(len(self.listed_by), 'ledger')} will lack copies until autorecovery or "
                f"`bkctl recover BOOKIE` moves them: {some_names(self.listed_by)}"
            )
        return remarks

    def objections(self, conf: str) -> Iterator[Objection]:
        """Yield an objection if the only copies of entries may be deleted."""
        ledgers = self.only_here
        why = "no running bookie has another copy of entries of"
        if ledgers is None:
            # With an index, ledgers that only the logs have were deleted.
            ledgers = sorted({*self.only_in_journals, *(() if self.ledgers else self.only_in_logs)})
            why = "no index lists entries, whose other copies were not checked, of"
        if ledgers:
            which = ledgers[0] if len(ledgers) == 1 else "LEDGER"
            yield Objection(
                ONLY_COPIES,
                f"{why} {counted(len(ledgers), 'ledger')}: {some_names(ledgers)}",
                "start the bookies with other copies, or save the entries: "
                f"`bkctl disk salvage {which} --out DIR -c {conf}`",
            )


def format_bookie(
    session: Session, *, delete_cookie: bool, force: Collection[str], option: str = "--force"
) -> None:
    """Show the data that would be deleted, ask, and empty the bookie's directories.

    Raises:
        RefusedError: the bookie runs, belongs to another cluster or may have the only copies of
            entries, or the user did not confirm.
    """
    bookie = stopped_bookie(session)
    ask = METADATA not in force
    conf = session.options.conf or "FILE"
    if ask:
        _require_same_cluster(session, bookie)
        refuse_registered(session, bookie.bookie_id, force=force)
    refuse_other_owner(bookie.found.existing())
    also = () if bookie.metadata_cache is None else (bookie.metadata_cache,)
    if session.dry_run:
        doomed = _doomed(session, bookie, also, ask=ask)
        for line in doomed.remarks():
            session.note(line)
        refuse_unless_forced(session, doomed.objections(conf), force, option=option)
        steps = [f"remove {line}" for line in doomed.lost()]
        if delete_cookie and not (ask and bookie.stored.read() is None):
            steps.append("remove the stored cookie")
        session.plan(steps)
        return
    with lock_or_make(session, bookie.found, bookie.config):
        doomed = _doomed(session, bookie, also, ask=ask)
        refuse_unless_forced(session, doomed.objections(conf), force, option=option)
        _confirm(session, bookie, doomed, delete_cookie=delete_cookie)
        stored = bookie.stored if delete_cookie else None
        with repeatable(session, "no bookie starts on what is left; run the same command again"):
            wipe(RealFiles(), bookie.found, also=also, stored=stored)
    session.emit(
        FormattedBookie(
            bookie.bookie_id,
            tuple(map(str, (*bookie.found.roots, *also))),
            sum(one.files for one in doomed.roots),
            sum(one.size_bytes for one in doomed.roots),
            len(doomed.ledgers),
            delete_cookie,
        )
    )


def _require_same_cluster(session: Session, bookie: StoppedBookie) -> None:
    """Refuse if the bookie belongs to another cluster: that metadata lacks its ledgers."""
    cluster = session.call(lambda client: client.store.instance_id())
    for root in bookie.found.roots:
        try:
            cookie = read_cookie(RealFiles(), root / CURRENT)
        except (BadCookieError, OSError):
            continue  # An unreadable cookie is deleted, too.
        if cookie is not None and cookie.instance_id not in {None, cluster}:
            raise RefusedError(
                f"{root} belongs to cluster {cookie.instance_id}, but {cluster} is selected",
                next_step="select its cluster with -u; if the cluster was formatted or removed, "
                "`bkctl cluster restore FILE` brings it and these entries back; to lose them, "
                "ignore the metadata service: `bkctl disk format --force metadata`",
            )


def _confirm(
    session: Session, bookie: StoppedBookie, doomed: _DeletedContents, *, delete_cookie: bool
) -> None:
    if any(one.files for one in doomed.roots):
        cookie = ["  and its stored cookie"] if delete_cookie else []
        session.confirm(
            [
                f"All data of bookie {bookie.bookie_id} will be lost:",
                *(f"  {line}" for line in doomed.lost()),
                *cookie,
                *doomed.remarks(),
            ],
            f"Format bookie {bookie.bookie_id}?",
            proof=bookie.bookie_id,
        )


def _doomed(
    session: Session, bookie: StoppedBookie, also: Sequence[Path], *, ask: bool
) -> _DeletedContents:
    offline = OfflineBookie(RealFiles(), bookie.found.existing(CURRENT))
    doomed = _DeletedContents(contents(RealFiles(), (*bookie.found.roots, *also)))
    journals = JournalTail()
    damaged: list[CorruptError] = []
    with session.messages.waiting("reading journals and indexes"):
        for path in offline.journals():
            for record in records_of(offline, path, 0, damaged.append):
                journals.add(record)
        doomed.only_in_journals = {
            ledger_id: found.count for ledger_id, found in journals.ledgers.items() if found.ranges
        }
        _count_indexed(offline, journals, doomed)
        doomed.only_in_logs = sorted(_logged(offline, damaged) - {*doomed.ledgers})
    warn_damage(session, damaged)
    if ask:
        listed = session.iterate(
            ledgers_on_bookies, [bookie.bookie_id], unreadable=lambda _id, _error: None
        )
        doomed.listed_by = [one.ledger_id for one in listed]
        # Damaged files may have entries of any ledger.
        unseen = doomed.listed_by if damaged else ()
        ids = sorted({*doomed.ledgers, *doomed.only_in_logs, *doomed.only_in_journals, *unseen})
        stored = session.call(_stored_ledgers, ids, bookie.bookie_id)
        doomed.only_here = [ledger_id for ledger_id, is_only in stored.items() if is_only]
        doomed.only_in_logs = [one for one in doomed.only_in_logs if one in stored]
        doomed.only_in_journals = {
            ledger_id: count
            for ledger_id, count in doomed.only_in_journals.items()
            if ledger_id in stored
        }
    return doomed


def _count_indexed(offline: OfflineBookie, journals: JournalTail, doomed: _DeletedContents) -> None:
    """Count the entries in the indexes, and subtract them from those only in journals."""
    try:
        with offline.shards() as shards:
            for shard in shards:
                log_ids = {log_id(path.name) for path in shard.entry_logs()}
                for ledger_id in shard.index.ledger_ids():
                    doomed.ledgers.append(ledger_id)
                    journalled = journals.ledgers.get(ledger_id, PendingLedger())
                    try:
                        for entry_id, location in entries_of(shard.index, ledger_id):
                            if split_location(location)[0] in log_ids:
                                doomed.entries += 1
                                if journalled.holds(entry_id):
                                    doomed.only_in_journals[ledger_id] -= 1
                    except CorruptError:
                        doomed.damaged += 1
    except (CorruptError, DirectoryError):
        doomed.damaged += 1
    doomed.only_in_journals = {
        ledger_id: count for ledger_id, count in doomed.only_in_journals.items() if count
    }


def _logged(offline: OfflineBookie, damaged: list[CorruptError]) -> set[int]:
    """Return the ledgers in the entry logs; add what cannot be read to ``damaged``."""
    found: set[int] = set()
    for file in log_files(offline.files, offline.found):
        try:
            log = summarize(offline.files, file.path)
        except CorruptError as error:
            damaged.append(error)
            continue
        found.update(share.ledger_id for share in log.ledgers)
        damaged += [] if log.damage is None else [log.damage]
    return found


async def _stored_ledgers(
    client: Client, ledgers: Sequence[int], bookie_id: BookieId
) -> dict[int, bool]:
    """Return the existing ledgers that list this bookie, and whether it may have the only copies.

    A ledger with unreadable metadata is included: its other bookies are unknown.
    """
    store = client.store
    alive = await store.registered_bookies() - {bookie_id}
    return {
        one.ledger_id: one.metadata is None or is_only_copy(one.metadata, bookie_id, alive)
        for at in range(0, len(ledgers), IDS_AT_ONCE)
        for one in await read_ledgers(store, [LedgerId(n) for n in ledgers[at : at + IDS_AT_ONCE]])
        if one.metadata is None or bookie_id in one.metadata.all_bookies()
    }


# Init ---------------------------------------------------------------------------------------------


def init_bookie(session: Session, *, write: bool) -> None:
    """Check that a new bookie can start; with ``write`` make its directories and its cookie.

    Raises:
        RefusedError: the bookie is registered or has a cookie, or a directory is not empty.
    """
    bookie = stopped_bookie(session)
    _require_new(session, bookie)
    names = tuple(map(str, bookie.found.roots))
    if write and session.dry_run:
        session.plan([*(f"make {name}/{CURRENT}" for name in names), "write and store the cookie"])
        return
    if write:
        with lock_or_make(session, bookie.found, bookie.config):
            prepare(RealFiles(), bookie.found)
            stamp(session, bookie)
    session.emit(InitializedBookie(bookie.bookie_id, names, written=write))


def _require_new(session: Session, bookie: StoppedBookie) -> None:
    other = "give the new bookie an id or port of its own"
    refuse_registered(session, bookie.bookie_id, instead=other)
    if bookie.stored.read() is not None:
        raise RefusedError(
            f"the metadata service has a cookie of {bookie.bookie_id}: it was in use before",
            next_step="`bkctl bookieformat --delete-cookie` removes the bookie for good",
        )
    for root in bookie.found.roots:
        full = [
            str(directory)
            for directory, ours in ((root, {CURRENT, LOCK}), (root / CURRENT, set[str]()))
            if directory.is_dir() and {path.name for path in directory.iterdir()} - ours
        ]
        if full:
            raise RefusedError(
                f"{full[0]} is not empty", next_step="`bkctl bookieformat` empties directories"
            )
