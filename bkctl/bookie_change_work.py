"""What `bookie flip-id` and `bookie expand-storage` do.

A flip goes in an order that can be cut short anywhere and run again: the new cookie is stored, the
ledgers are renamed, the VERSION files are rewritten, the old cookie is removed. Until the files say
so the old id is known from them; a bookie that is started in between finds two cookies and refuses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from bkclient import bookie_ids
from bkclient.metadata.api import ANY, NEW, CookieExistsError, CookieNotFoundError, Versioned
from bkctl.disk_change import (
    StoppedBookie,
    held,
    insist_current,
    locked,
    refuse_registered,
    repeatable,
    stopped_bookie,
)
from bkctl.errors import ConflictError, NothingFoundError, PartlyDoneError, RefusedError, UsageError
from bkctl.ledger_bookie_work import rename_all
from bkctl.units import counted
from bookied.cookie_check import check_cookies, master_cookie
from bookied.dirs import VERSION, prepare
from bookied.files import RealFiles
from bookied.identity import RealHost, identify
from wire.errors import FormatError
from wire.ids import BookieId
from wire.records import Cookie, cookie_differences, decode_cookie, encode_cookie

if TYPE_CHECKING:
    from bkclient.client import Client
    from bkctl.session import Session


@attrs.frozen
class IdFlipped:
    """A bookie that goes by another id now."""

    bookie_id: BookieId
    was: BookieId
    directories: int
    ledgers: int | None
    """How many list it under the new id; None where they were left alone."""


@attrs.frozen
class StorageExpanded:
    """A bookie that may use more directories."""

    bookie_id: BookieId
    added: tuple[str, ...]


# Another id -------------------------------------------------------------------------------------


def flip_id(session: Session, kind: str | None, old: BookieId | None, *, rename: bool) -> None:
    """Show what would change, ask, and give the bookie the id of its settings.

    Raises:
        RefusedError: it runs, or has that id already, or a cookie does not fit.
        PartlyDoneError: some ledgers list both ids.
    """
    bookie = stopped_bookie(session)
    _insist_kind(bookie, kind)
    insist_current(bookie.found)
    new, was = bookie.bookie_id, old or _former_id(bookie)
    if was == new:
        raise RefusedError(
            f"it is {new} in its files and by its settings",
            next_step="change the settings first; --from OLD ends a flip that was cut short",
        )
    refuse_registered(session, was)
    refuse_registered(session, new)
    cookie = session.call(_new_cookie, bookie, was)
    ledgers = session.call(bookie_ids.ledgers_listing, was) if rename else []
    steps = _steps(bookie, was, len(ledgers) if rename else None)
    if session.dry_run:
        session.plan(steps)
        return
    session.confirm([f"To make {was} {new}:", *(f"  {step}" for step in steps)], "Go on?")
    with held(bookie.found, port=bookie.config.port), repeatable(session, "run it again"):
        session.call(_store_new, new, encode_cookie(cookie))
        skipped = rename_all(session, ledgers, was, new, verify=False)
        if skipped:
            raise PartlyDoneError(
                f"{counted(len(skipped), 'ledger')} still list {was}",
                next_step="nothing else was changed; mend or delete them, and run it again",
            )
        for directory in bookie.found.all_dirs:
            RealFiles().write_atomic(directory / VERSION, encode_cookie(cookie))
        session.call(_remove_old, was)
    session.emit(IdFlipped(new, was, len(bookie.found.all_dirs), len(ledgers) if rename else None))


def _insist_kind(bookie: StoppedBookie, kind: str | None) -> None:
    if kind is None:
        return
    if kind == "hostname" and not bookie.config.use_host_name:
        raise UsageError("the settings do not say so", next_step="set useHostNameAsBookieID=true")
    if kind == "ip" and bookie.config.use_host_name:
        raise UsageError("the settings do not say so", next_step="set useHostNameAsBookieID=false")


def _former_id(bookie: StoppedBookie) -> BookieId:
    """Return the id that the files have, or some of them still have."""
    ids = []
    for directory in bookie.found.all_dirs:
        try:
            ids.append(BookieId(decode_cookie(RealFiles().read(directory / VERSION)).bookie_id))
        except FileNotFoundError as error:
            raise NothingFoundError(
                f"{directory} has no cookie", next_step="`bkctl disk check` tells what is there"
            ) from error
        except FormatError as error:
            raise ConflictError(f"{directory / VERSION} is no cookie: {error}") from error
    former = {one for one in ids if one != bookie.bookie_id}
    if len(former) > 1:
        raise ConflictError(f"the directories are of several bookies: {', '.join(sorted(former))}")
    return former.pop() if former else bookie.bookie_id


async def _new_cookie(client: Client, bookie: StoppedBookie, was: BookieId) -> Cookie:
    """Return the cookie of the new id, if all that is stored fits but for the id.

    Raises:
        RefusedError: a stored cookie says something else.
        NothingFoundError: neither id has one.
    """
    cluster = await client.store.instance_id()
    master = master_cookie(bookie.config, bookie.bookie_id, cluster)
    found = False
    for bookie_id in (was, bookie.bookie_id):
        try:
            stored: Versioned[bytes] = await client.store.read_cookie(bookie_id)
        except CookieNotFoundError:
            continue
        found = True
        expected = attrs.evolve(master, bookie_id=bookie_id)
        for one in cookie_differences(expected, decode_cookie(stored.value)):
            raise RefusedError(
                f"the stored cookie of {bookie_id} does not fit in its {one.field}: {one.theirs} "
                f"there, {one.ours} by the settings",
                next_step="change nothing but the id at a time",
            )
    if not found:
        raise NothingFoundError(f"there is no cookie of {was}: it is no bookie of this cluster")
    return master


def _steps(bookie: StoppedBookie, was: BookieId, ledgers: int | None) -> list[str]:
    rename = [] if ledgers is None else [f"rename it in {counted(ledgers, 'ledger')}"]
    return [
        f"store a cookie of {bookie.bookie_id}",
        *rename,
        f"rewrite VERSION in {len(bookie.found.all_dirs)} places",
        f"remove the cookie of {was}",
    ]


async def _store_new(client: Client, bookie_id: BookieId, text: bytes) -> None:
    try:
        await client.store.write_cookie(bookie_id, text, NEW)
    except CookieExistsError:  # From a run that was cut short: ``_new_cookie`` has compared it.
        return


async def _remove_old(client: Client, bookie_id: BookieId) -> None:
    try:
        await client.store.remove_cookie(bookie_id, ANY)
    except CookieNotFoundError:
        return


# More directories -------------------------------------------------------------------------------


def expand_storage(session: Session) -> None:
    """Stamp the directories that are new in the settings.

    Raises:
        NothingFoundError: the bookie has no cookie: it is new, or not of this cluster.
        RefusedError: it runs.
        WrongIdentityError: a directory is not empty or was in use before, or cookies do not fit.
    """
    bookie = stopped_bookie(session)
    refuse_registered(session, bookie.bookie_id)
    if bookie.stored.read() is None:
        raise NothingFoundError(
            f"there is no cookie of {bookie.bookie_id}",
            next_step="a new bookie makes all its directories when it first starts",
        )
    added = tuple(
        str(root) for root in bookie.found.roots if not (root / "current" / VERSION).exists()
    )
    if session.dry_run:
        session.plan(f"add {name}" for name in added)
        return
    with locked(bookie.found, port=bookie.config.port):
        prepare(RealFiles(), bookie.found)
        session.call(_stamp, bookie)
    session.emit(StorageExpanded(bookie.bookie_id, added))


async def _stamp(client: Client, bookie: StoppedBookie) -> None:
    await check_cookies(
        attrs.evolve(bookie.config, allow_storage_expansion=True),
        identify(bookie.config, bookie.config.port, RealHost()),
        bookie.found,
        store=client.store,
        instance_id=await client.store.instance_id(),
        files=RealFiles(),
    )
