"""What `cookie verify` and `cookie repair` do: one bookie's cookies, wherever they are kept."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import attrs

from bkclient.metadata.api import NEW
from bkctl.bookies.stopped_bookie import (
    StoppedBookie,
    lock_existing,
    refuse_registered,
    stopped_bookie,
)
from bkctl.commands.cookie.moved_directories import former_paths, refuse_other_contents
from bkctl.errors import ConflictError, ProblemsError, RefusedError
from bkctl.output.units import counted
from bkctl.output.views import BOOKIE, field, shown
from bkctl.session.session import Session
from bookied.config.bookie import StorageClass
from bookied.directories.cookie_check import master_cookie
from bookied.directories.emptied_directories import note_moves
from bookied.directories.root_paths import check_paths, note_paths
from bookied.directories.roots import VERSION
from bookied.errors import WrongIdentityError
from bookied.storage.files.files import RealFiles
from wire.errors import FormatError
from wire.ids import BookieId
from wire.records.cookie import (
    COOKIE_VERSION,
    Cookie,
    CookieDifference,
    cookie_differences,
    decode_cookie,
    encode_cookie,
)

STORED: Final = "metadata service"
"""Where the cluster keeps a cookie."""

ID: Final = "bookie id"
INSTANCE: Final = "instance id"


@attrs.frozen
class FoundCookie:
    """What is kept at one place; ``cookie`` is ``None`` where it is lost, or no cookie."""

    place: str
    cookie: Cookie | None
    problem: str = ""
    is_empty: bool = False
    """A directory with nothing in it."""


def _repaired(v: CookiesRepaired) -> str:
    if not v.places:
        return f"every cookie of {v.bookie_id} is correct"
    return f"the cookie of {v.bookie_id} is at {', '.join(v.places)} again"


@shown("repairs", sentence=_repaired)
class CookiesRepaired:
    """Where a bookie's cookie was written anew."""

    bookie_id: BookieId = field(BOOKIE)
    places: tuple[str, ...] = field("Directories and metadata that got the cookie.")


@attrs.frozen
class _BookieOnDisk:
    bookie: StoppedBookie
    master: Cookie
    version: int
    """Of the stored cookie; ``NEW`` where there is none."""
    cookies: tuple[FoundCookie, ...]


def problems(master: Cookie, found: FoundCookie) -> Iterator[CookieDifference]:
    """Yield in what a cookie differs from the one that settings and cluster call for."""
    if found.cookie is None:
        yield CookieDifference("cookie", "one", found.problem, found.place)
        return
    yield from cookie_differences(master, found.cookie, place=found.place)


def verify(session: Session) -> None:
    """Compare all cookies of a bookie with its settings.

    Raises:
        ProblemsError: one does not fit.
    """
    seen = _read_cookies(session)
    found = [problem for one in seen.cookies for problem in problems(seen.master, one)]
    session.emit_all(found, CookieDifference)
    if found:
        raise ProblemsError(
            f"{counted(len({one.place for one in found}), 'cookie')} of {len(seen.cookies)} "
            "differ from the settings",
            next_step="`bkctl cookie repair` writes lost cookies again, and follows moved "
            "directories; `bkctl disk expand` adds directories; `bkctl bookie rename` follows a "
            "changed id",
        )
    session.note(
        f"{counted(len(seen.cookies), 'cookie')} of {seen.master.bookie_id}, all as the "
        "settings say"
    )


def _read_cookies(session: Session) -> _BookieOnDisk:
    bookie = stopped_bookie(session)
    instance_id = session.call(lambda client: client.store.instance_id())
    master = master_cookie(bookie.config, bookie.bookie_id, instance_id)
    stored = bookie.stored.read()
    return _BookieOnDisk(
        bookie,
        master,
        NEW if stored is None else stored.version,
        (
            _decoded(STORED, None if stored is None else stored.value),
            *map(_local, bookie.found.all_dirs),
        ),
    )


def _local(directory: Path) -> FoundCookie:
    place = str(directory / VERSION)
    try:
        text: bytes | None = RealFiles().read(directory / VERSION)
    except FileNotFoundError:
        text = None
    is_empty = not directory.is_dir() or not any(directory.iterdir())
    return attrs.evolve(_decoded(place, text), is_empty=is_empty)


def _decoded(place: str, text: bytes | None) -> FoundCookie:
    if text is None:
        return FoundCookie(place, None, "none")
    try:
        return FoundCookie(place, decode_cookie(text))
    except FormatError as error:
        return FoundCookie(place, None, f"damaged: {error}")


# Repair -----------------------------------------------------------------------------------------


def to_rewrite(master: Cookie, cookies: tuple[FoundCookie, ...]) -> tuple[str, ...]:
    """Return at which places the cookie has to be written anew.

    Raises:
        ConflictError: a cookie is another bookie's, of another cluster, or of other directories.
        RefusedError: none is left that fits, or a directory is empty.
    """
    bad = [one for one in cookies if any(problems(master, one))]
    for problem in (found for one in bad if one.cookie for found in problems(master, one)):
        raise ConflictError(
            f"{problem.place}: {problem.field} is {problem.found}; the settings say "
            f"{problem.configured}",
            next_step=_OTHERS.get(problem.field, _DIRECTORIES),
        )
    if bad and len(bad) == len(cookies):
        raise RefusedError(
            "no cookie is left that names the bookie of these directories",
            next_step="`bkctl cookie show` on another cluster's service, or a backup, may have one",
        )
    for one in bad:
        if one.is_empty:
            raise RefusedError(
                f"{Path(one.place).parent} is empty: its data is lost",
                next_step="is its disk mounted? If its data is lost, move the ledgers away "
                "(`bkctl recover`), and start the bookie as a new one",
            )
    return tuple(one.place for one in bad)


_OTHERS: Final = {
    ID: "`bkctl bookie rename` gives a bookie another id",
    INSTANCE: "it belongs to another cluster: check metadataServiceUri",
}
_DIRECTORIES: Final = (
    "move each directory with all its files to its path in the settings, and run this command "
    "again; `bkctl disk expand` adds directories"
)


def repair(session: Session) -> None:
    """Show where a bookie's cookie would be written anew, ask, and write it.

    Raises:
        RefusedError, ConflictError: as ``to_rewrite``; or it runs, or the user did not confirm.
    """
    seen = _read_cookies(session)
    bookie_id = seen.bookie.bookie_id
    refuse_registered(session, bookie_id)
    former = _former_paths(seen)
    try:
        check_paths(RealFiles(), seen.bookie.found, former)
    except WrongIdentityError as error:
        raise RefusedError(str(error)) from error
    if former:
        refuse_other_contents(seen.bookie.found, former)
        places = _places_of(seen)
    else:
        places = to_rewrite(seen.master, seen.cookies)
    moved = [f"{path} is {root} now" for root, path in former.items()]
    if session.dry_run:
        for line in moved:
            session.note(line)
        session.plan(f"write the cookie of {bookie_id} to {place}" for place in places)
        return
    if places:
        lines = [f"The cookie of {bookie_id} will be written to:", *(f"  {p}" for p in places)]
        session.confirm([*moved, *lines], "Go on?")
        with lock_existing(session, seen.bookie.found, seen.bookie.config):
            note_moves(RealFiles(), seen.bookie.found, former)
            note_paths(RealFiles(), seen.bookie.found)
            _write(seen, places)
    session.emit(CookiesRepaired(bookie_id, places))


def _former_paths(seen: _BookieOnDisk) -> dict[Path, Path]:
    """Return the former path of each moved root; empty where the cookies do not agree on it."""
    held = [one.cookie for one in seen.cookies]
    old = {
        attrs.evolve(one, layout_version=COOKIE_VERSION)
        for one in held
        if one is not None and cookie_differences(seen.master, one)
    }
    if None in held or len(old) != 1:
        return {}
    has_shards = seen.bookie.config.storage_class is StorageClass.DB
    return former_paths(seen.master, old.pop(), has_shards=has_shards)


def _places_of(seen: _BookieOnDisk) -> tuple[str, ...]:
    """Return where another cookie is; the stored one last, so that a rerun finds all of them."""
    bad = [one.place for one in seen.cookies if any(problems(seen.master, one))]
    return tuple(sorted(bad, key=lambda place: place == STORED))


def _write(seen: _BookieOnDisk, places: tuple[str, ...]) -> None:
    text = encode_cookie(seen.master)
    for place in places:
        if place == STORED:
            seen.bookie.stored.write(text, seen.version)
        else:
            RealFiles().write_atomic(Path(place), text)
