"""`bookie rename` and `disk expand`.

A rename can be interrupted at any step and run again. Its order is: the new cookie is stored, the
ledgers are changed, the VERSION files are rewritten, the old cookie is removed. Meanwhile a file
contains both ids: with this file, a cookie under the new id is the bookie's own, otherwise another
bookie's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import attrs

from bkclient.admin import bookie_ids
from bkclient.client import Client
from bkclient.metadata.errors import CookieExistsError, CookieNotFoundError
from bkclient.metadata.versions_and_watches import NEW, StoredLedger
from bkctl.bookies.stopped_bookie import (
    StoppedBookie,
    lock_existing,
    lock_or_make,
    refuse_registered,
    refuse_use,
    repeatable,
    require_current,
    stamp,
    stopped_bookie,
)
from bkctl.commands.bookie.rename_ledgers import rename_all, update_bookie
from bkctl.errors import ConflictError, NothingFoundError, PartlyDoneError, RefusedError, UsageError
from bkctl.output.units import counted
from bkctl.output.views import BOOKIE, Column, field, shown
from bkctl.session.session import Session
from bookied.directories.cookie_check import master_cookie
from bookied.directories.roots import CURRENT, RENAMING, VERSION, prepare
from bookied.storage.files.files import RealFiles
from wire.errors import FormatError
from wire.ids import BookieId
from wire.records.cookie import Cookie, cookie_differences, decode_cookie, encode_cookie

_PAIR: Final = 2
"""An old id and a new one."""


@attrs.frozen
class IdChange:
    """The change of a bookie's id."""

    old: BookieId
    new: BookieId

    def encode(self) -> bytes:
        """Return the contents of the file ``RENAMING``."""
        return f"{self.old} {self.new}\n".encode()


_WAS: Final = Column("was", "The old bookie id.")


def _flipped(v: IdFlipped) -> str:
    ledgers = (
        "its ledgers still list the old id"
        if v.ledgers is None
        else "no ledger lists the old id, perhaps because autorecovery has copied its ledgers"
        if not v.ledgers
        else f"renamed in {counted(v.ledgers, 'ledger')}"
    )
    return f"bookie {v.was} is {v.bookie_id} now: {ledgers}; it can be started"


@shown("bookies", sentence=_flipped)
class IdFlipped:
    """A bookie with a new id."""

    bookie_id: BookieId = field(BOOKIE)
    was: BookieId = field(_WAS)
    directories: int = field("VERSION files rewritten.")
    ledgers: int | None = field("Ledgers renamed.")
    """The ledgers that list the new id; None if ledgers were not changed."""


def _expanded(v: StorageExpanded) -> str:
    if not v.added:
        return f"bookie {v.bookie_id} already has all its directories"
    return f"bookie {v.bookie_id} may use {', '.join(v.added)} too; it can be started"


@shown("bookies", sentence=_expanded)
class StorageExpanded:
    """A bookie that may use more directories."""

    bookie_id: BookieId = field(BOOKIE)
    added: tuple[str, ...] = field("New directories.")


# New id -----------------------------------------------------------------------------------------


def rename(
    session: Session,
    *,
    ids: Sequence[BookieId],
    old: BookieId | None,
    new: BookieId | None,
    ledgers: bool,
    **options: Any,
) -> None:
    """Rename the bookie of the settings to their id; or rename OLD to NEW only in ledgers.

    Raises:
        UsageError: the number of ids is wrong.
    """
    pair = [*ids, *filter(None, (old, new))]
    if not pair or pair in (["hostname"], ["ip"]):
        flip_id(session, pair[0] if pair else None, rename=ledgers)
    elif len(pair) != _PAIR:
        raise UsageError("no ids are named", next_step="give OLD and NEW, or -c FILE without ids")
    else:
        update_bookie(session, BookieId(pair[0]), BookieId(pair[1]), **options)


def flip_id(session: Session, kind: str | None, *, rename: bool) -> None:
    """Show the changes, ask, and rename the bookie to the id of its settings.

    Raises:
        RefusedError: the bookie runs, or has that id already, or another bookie has it.
        PartlyDoneError: some ledgers still list the old id.
    """
    bookie = stopped_bookie(session)
    _require_kind(bookie, kind)
    require_current(bookie.found)
    begun = _begun(bookie)
    flip = begun or IdChange(_id_in_files(bookie), bookie.bookie_id)
    if flip.old == flip.new:
        raise RefusedError(
            f"the bookie is already {flip.new} in its files and its settings",
            next_step="change the settings first",
        )
    refuse_registered(session, flip.old, flip.new)
    cookie = session.call(_new_cookie, bookie, flip, resumed=begun is not None)
    ledgers = session.call(bookie_ids.ledgers_listing, flip.old) if rename else []
    steps = _steps(bookie, flip, len(ledgers) if rename else None)
    if session.plans_only(steps):
        return
    session.confirm(
        [f"To rename {flip.old} to {flip.new}:", *(f"  {one}" for one in steps)], "Go on?"
    )
    with lock_existing(session, bookie.found, bookie.config), repeatable(session, "run it again"):
        if rename:  # The bookie may have run and got ledgers while the question waited.
            ledgers = session.call(bookie_ids.ledgers_listing, flip.old)
        _flip(session, bookie, flip, cookie, ledgers)
    session.emit(
        IdFlipped(flip.new, flip.old, len(bookie.found.all_dirs), len(ledgers) if rename else None)
    )


def _flip(
    session: Session,
    bookie: StoppedBookie,
    flip: IdChange,
    cookie: Cookie,
    ledgers: Sequence[StoredLedger],
) -> None:
    files, marker = RealFiles(), bookie.found.roots[0] / RENAMING
    files.write_atomic(marker, flip.encode())
    session.call(_store_new, flip.new, encode_cookie(cookie))
    skipped = rename_all(session, ledgers, flip.old, flip.new, verify=False)
    if skipped:
        raise PartlyDoneError(
            f"{counted(len(skipped), 'ledger')} still "
            f"{'lists' if len(skipped) == 1 else 'list'} {flip.old}",
            next_step="no file was changed; repair or delete these ledgers, and run the command "
            "again",
        )
    for directory in bookie.found.all_dirs:
        files.write_atomic(directory / VERSION, encode_cookie(cookie))
    session.call(_remove_old, flip.old)
    files.remove(marker)
    files.sync_dir(marker.parent)


def _begun(bookie: StoppedBookie) -> IdChange | None:
    """Return the interrupted rename; None without one.

    Raises:
        ConflictError: its new id is not that of the settings.
    """
    try:
        words = RealFiles().read(bookie.found.roots[0] / RENAMING).decode().split()
    except FileNotFoundError:
        return None
    flip = IdChange(*map(BookieId, words))
    if flip.new != bookie.bookie_id:
        raise ConflictError(
            f"a rename from {flip.old} to {flip.new} has begun, but the settings say "
            f"{bookie.bookie_id}",
            next_step=f"set the id to {flip.new} in the settings, and finish that rename first",
        )
    return flip


def _require_kind(bookie: StoppedBookie, kind: str | None) -> None:
    if kind is None:
        return
    if kind == "hostname" and not bookie.config.use_host_name:
        raise UsageError(
            "the settings choose another kind of id", next_step="set useHostNameAsBookieID=true"
        )
    if kind == "ip" and bookie.config.use_host_name:
        raise UsageError(
            "the settings choose another kind of id", next_step="set useHostNameAsBookieID=false"
        )


def _id_in_files(bookie: StoppedBookie) -> BookieId:
    """Return the id that all VERSION files contain."""
    ids = set()
    for directory in bookie.found.all_dirs:
        try:
            ids.add(BookieId(decode_cookie(RealFiles().read(directory / VERSION)).bookie_id))
        except FileNotFoundError as error:
            raise NothingFoundError(
                f"{directory} has no cookie",
                next_step="`bkctl disk check` reports the present files",
            ) from error
        except FormatError as error:
            raise ConflictError(f"{directory / VERSION} is not a cookie: {error}") from error
    if len(ids) > 1:
        raise ConflictError(f"the directories are of several bookies: {', '.join(sorted(ids))}")
    return ids.pop()


async def _new_cookie(
    client: Client, bookie: StoppedBookie, flip: IdChange, *, resumed: bool
) -> Cookie:
    """Return the new id's cookie, if the stored cookies differ from the settings only in the id.

    Raises:
        RefusedError: a stored cookie differs in another field, or another bookie has the new id.
        NothingFoundError: the old id has no cookie.
    """
    master = master_cookie(bookie.config, flip.new, await client.store.instance_id())
    old, new = await _stored(client, flip.old), await _stored(client, flip.new)
    if new is not None and not resumed:
        raise RefusedError(
            f"a bookie {flip.new} already exists",
            next_step=f"`bkctl bookie show {flip.new}` shows it; give this bookie another id",
        )
    if old is None and new is None:
        raise NothingFoundError(
            f"{flip.old} has no cookie in this cluster: it belongs to another cluster"
        )
    for cookie in (old, new):
        if cookie is None:
            continue
        for one in cookie_differences(attrs.evolve(master, bookie_id=cookie.bookie_id), cookie):
            raise RefusedError(
                f"the stored cookie of {cookie.bookie_id} differs in {one.field}: it has "
                f"{one.found}, and the settings have {one.configured}",
                next_step="change only the id, and nothing else in the same step",
            )
    return master


async def _stored(client: Client, bookie_id: BookieId) -> Cookie | None:
    try:
        return decode_cookie((await client.store.read_cookie(bookie_id)).value)
    except CookieNotFoundError:
        return None


def _steps(bookie: StoppedBookie, flip: IdChange, ledgers: int | None) -> list[str]:
    rename = [] if ledgers is None else [f"rename it in {counted(ledgers, 'ledger')}"]
    return [
        f"store a cookie of {flip.new}",
        *rename,
        f"rewrite VERSION in {len(bookie.found.all_dirs)} places",
        f"remove the cookie of {flip.old}",
    ]


async def _store_new(client: Client, bookie_id: BookieId, text: bytes) -> None:
    try:
        await client.store.write_cookie(bookie_id, text, NEW)
    # The cookie is from an interrupted run: ``_new_cookie`` has compared it.
    except CookieExistsError:
        return


async def _remove_old(client: Client, bookie_id: BookieId) -> None:
    try:
        await client.store.remove_cookie(bookie_id)
    except CookieNotFoundError:
        return


# More directories -------------------------------------------------------------------------------


def expand_storage(session: Session) -> None:
    """Write VERSION files to the directories that are new in the settings.

    Raises:
        NothingFoundError: the bookie has no cookie: it is new, or belongs to another cluster.
        RefusedError: it runs, a directory is not empty or was in use before, or cookies do not fit.
    """
    bookie = stopped_bookie(session)
    refuse_registered(session, bookie.bookie_id)
    if bookie.stored.read() is None:
        raise NothingFoundError(
            f"there is no cookie of {bookie.bookie_id}",
            next_step="a new bookie makes all its directories when it first starts",
        )
    added = tuple(
        str(root) for root in bookie.found.roots if not (root / CURRENT / VERSION).exists()
    )
    if session.dry_run:
        refuse_use(session, bookie.found, bookie.config)
        stamp(session, bookie, expand=True, dry_run=True)
        session.plan(f"add {name}" for name in added)
        return
    with lock_or_make(session, bookie.found, bookie.config):
        prepare(RealFiles(), bookie.found)
        stamp(session, bookie, expand=True)
    session.emit(StorageExpanded(bookie.bookie_id, added))
