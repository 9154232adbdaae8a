"""What `disk format` and `disk init` do: the steps between parsed options and printed values."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs

from bkclient.admin.ledger_scan import IDS_AT_ONCE, read_ledgers
from bkclient.metadata.api import registered_bookies
from bkclient.quorum.fragments import is_only_copy
from bkctl.bookies.stopped_bookie import (
    StoppedBookie,
    lock_or_make,
    refuse_other_owner,
    refuse_registered,
    repeatable,
    stamp,
    stopped_bookie,
)
from bkctl.errors import RefusedError
from bkctl.output.units import counted, human_bytes
from bkctl.output.views import BOOKIE, Kind, field, shown
from bkctl.session.safety_checks import some_names
from bookied.directories.lock import LOCK
from bookied.directories.roots import CURRENT, Directories, prepare
from bookied.errors import BadCookieError, CorruptError, DirectoryError
from bookied.offline.bookie import OfflineBookie
from bookied.offline.index import entries_of
from bookied.offline.repair.format import Contents, contents, wipe
from bookied.offline.repair.old_layout import read_cookie
from bookied.storage.files.files import RealFiles
from wire.ids import BookieId, LedgerId

if TYPE_CHECKING:
    from bkclient.client import Client
    from bkctl.session.session import Session

METADATA: Final = "metadata"
"""The safety check that asks the metadata service."""


def bookieformat(
    session: Session, *, non_interactive: bool, java_force: bool, delete_cookie: bool
) -> None:
    """Remove all data of a stopped bookie: `disk format` with Java's options."""
    session.options.no_input |= non_interactive
    session.options.yes |= java_force
    format_bookie(session, delete_cookie=delete_cookie, force=())


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
    """A bookie whose directories are empty now."""

    bookie_id: BookieId = field(BOOKIE)
    directories: tuple[str, ...] = field("Directories of the bookie.")
    files: int = field("Files removed.")
    size_bytes: int = field("Bytes removed.", name="size", kind=Kind.BYTES)
    ledgers: int = field("Number of ledgers in the bookie's indexes.")
    cookie_removed: bool = field("Whether the stored cookie is gone.")


def _initialized(v: InitializedBookie) -> str:
    if v.written:
        return f"bookie {v.bookie_id}: directories made, cookie stored; it can be started"
    return f"bookie {v.bookie_id}: a new bookie can begin here"


@shown("bookies", sentence=_initialized)
class InitializedBookie:
    """A bookie that could be started anew; ``written`` if its directories and cookie are made."""

    bookie_id: BookieId = field(BOOKIE)
    directories: tuple[str, ...] = field("Directories of the bookie.")
    written: bool = field("Whether directories and cookie are made.")


@attrs.frozen
class _DeletedContents:
    roots: list[Contents]
    ledgers: list[int]
    entries: int
    damaged: int
    only_here: list[int] | None
    """None where the metadata was not asked."""

    def lost(self) -> list[str]:
        """Return the lines that say what would be deleted."""
        ledgers = counted(len(self.ledgers), "ledger")
        at_least = "at least " if self.damaged else ""
        return [
            *(
                f"{one.root}: {counted(one.files, 'file')}, {human_bytes(one.size_bytes)}"
                for one in self.roots
            ),
            f"{ledgers} with {at_least}{counted(self.entries, 'entry')}",
        ]

    def remarks(self) -> list[str]:
        """Return what is to be known about it."""
        remarks = []
        if self.damaged:
            remarks.append(
                f"the index of {counted(self.damaged, 'ledger')}, or all of it, is damaged"
            )
        if self.only_here is None:
            remarks.append("the command did not check whether other bookies have copies")
        elif self.only_here:
            remarks.append(
                "no running bookie has another copy of entries of "
                f"{counted(len(self.only_here), 'ledger')}: {some_names(self.only_here)}"
            )
        return remarks


def format_bookie(session: Session, *, delete_cookie: bool, force: Sequence[str]) -> None:
    """Show what would be deleted, ask, and empty the bookie's directories.

    Raises:
        RefusedError: it runs, is of another cluster than is asked, or the user did not confirm.
    """
    bookie = stopped_bookie(session)
    if METADATA not in force:
        _insist_same_cluster(session, bookie)
        refuse_registered(session, bookie.bookie_id, force=force)
    existing = Directories(
        *(tuple(root for root in roots if root.is_dir()) for roots in attrs.astuple(bookie.found))
    )
    refuse_other_owner(existing)
    also = () if bookie.metadata_cache is None else (bookie.metadata_cache,)
    if session.dry_run:
        doomed = _doomed(session, bookie, also, ask=METADATA not in force)
        for line in doomed.remarks():
            session.note(line)
        session.plan([f"remove {line}" for line in doomed.lost()] + _last(delete_cookie))
        return
    with lock_or_make(session, bookie.found, bookie.config):
        doomed = _doomed(session, bookie, also, ask=METADATA not in force)
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


def _insist_same_cluster(session: Session, bookie: StoppedBookie) -> None:
    """Refuse to ask a cluster that the bookie does not belong to: it would not object."""
    cluster = session.call(lambda client: client.store.instance_id())
    for root in bookie.found.roots:
        try:
            cookie = read_cookie(RealFiles(), root / CURRENT)
        except (BadCookieError, OSError):
            continue  # It goes, whatever it says.
        if cookie is not None and cookie.instance_id not in {None, cluster}:
            raise RefusedError(
                f"{root} belongs to cluster {cookie.instance_id}, but {cluster} is selected",
                next_step="select its cluster with -u, or ignore the metadata service with "
                "--force metadata",
            )


def _last(delete_cookie: bool) -> list[str]:  # noqa: FBT001  # one question
    return ["remove the stored cookie"] if delete_cookie else []


def _confirm(
    session: Session, bookie: StoppedBookie, doomed: _DeletedContents, *, delete_cookie: bool
) -> None:
    if doomed.only_here:
        session.warn(f"entries of {counted(len(doomed.only_here), 'ledger')} have no other copy")
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
    offline = OfflineBookie(RealFiles(), bookie.found)
    ledgers, entries, damaged = _held(offline)
    only_here = None
    if ask:
        only_here = session.call(only_copies, bookie.bookie_id, ledgers)
    return _DeletedContents(
        contents(RealFiles(), (*bookie.found.roots, *also)), ledgers, entries, damaged, only_here
    )


def _held(offline: OfflineBookie) -> tuple[list[int], int, int]:
    """Return the ledgers that the indexes know, how many entries, and how many are damaged."""
    ledgers: list[int] = []
    damaged: list[CorruptError] = []
    entries = 0
    try:
        with offline.shards() as shards:
            for shard in shards:
                for ledger_id in shard.index.ledger_ids():
                    ledgers.append(ledger_id)
                    try:
                        entries += sum(1 for _ in entries_of(shard.index, ledger_id))
                    except CorruptError as error:
                        damaged.append(error)
    except (CorruptError, DirectoryError):
        return ledgers, entries, len(damaged) + 1
    except FileNotFoundError:
        pass  # A root that is not there yet, or an old layout.
    return ledgers, entries, len(damaged)


async def only_copies(client: Client, bookie_id: BookieId, ledgers: Sequence[int]) -> list[int]:
    """Return the ledgers of which this bookie has entries that no bookie in service has too.

    One whose metadata cannot be read counts: its other bookies are unknown.
    """
    store = client.store
    alive = await registered_bookies(store) - {bookie_id}
    return [
        one.ledger_id
        for at in range(0, len(ledgers), IDS_AT_ONCE)
        for one in await read_ledgers(store, [LedgerId(n) for n in ledgers[at : at + IDS_AT_ONCE]])
        if one.metadata is None or is_only_copy(one.metadata, bookie_id, alive)
    ]


# Init ---------------------------------------------------------------------------------------------


def init_bookie(session: Session, *, write: bool) -> None:
    """Make sure that a new bookie can begin here; with ``write`` make directories and cookie.

    Raises:
        RefusedError: it is registered or has a cookie, or a directory is not empty.
    """
    bookie = stopped_bookie(session)
    _insist_new(session, bookie)
    names = tuple(map(str, bookie.found.roots))
    if write and session.dry_run:
        session.plan([*(f"make {name}/{CURRENT}" for name in names), "write and store the cookie"])
        return
    if write:
        with lock_or_make(session, bookie.found, bookie.config):
            prepare(RealFiles(), bookie.found)
            stamp(session, bookie)
    session.emit(InitializedBookie(bookie.bookie_id, names, written=write))


def _insist_new(session: Session, bookie: StoppedBookie) -> None:
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
