"""The bodies of `cookie verify` and `cookie repair`, for all cookies of one stopped bookie."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import attrs

from bkclient.metadata.versions_and_watches import NEW
from bkctl.bookies.stopped_bookie import (
    StoppedBookie,
    lock_existing,
    refuse_registered,
    stopped_bookie,
)
from bkctl.errors import ConflictError, ProblemsError, RefusedError
from bkctl.output.units import counted
from bkctl.output.views import BOOKIE, field, shown
from bkctl.session.session import Session
from bookied.config.bookie import StorageClass
from bookied.directories.cookie_check import master_cookie
from bookied.directories.emptied_directories import foreign_contents, losses, note_moves
from bookied.directories.lock import LOCK
from bookied.directories.root_paths import check_paths, note_paths
from bookied.directories.roots import CURRENT, VERSION, Directories
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
"""The place of the cookie that the metadata service stores."""

ID: Final = "bookie id"
INSTANCE: Final = "instance id"


@attrs.frozen
class FoundCookie:
    """The cookie at one place; ``cookie`` is None if it is missing or damaged."""

    place: str
    cookie: Cookie | None
    problem: str = ""
    is_empty: bool = False
    """True if the directory is empty or missing."""


def _repaired(v: CookiesRepaired) -> str:
    if not v.places:
        return f"every cookie of {v.bookie_id} is correct"
    return f"the cookie of {v.bookie_id} is at {', '.join(v.places)} again"


@shown("repairs", sentence=_repaired)
class CookiesRepaired:
    """The places to which a bookie's cookie was written again."""

    bookie_id: BookieId = field(BOOKIE)
    places: tuple[str, ...] = field(
        "Directories to which the cookie was written, or the metadata service."
    )


@attrs.frozen
class _BookieOnDisk:
    bookie: StoppedBookie
    master: Cookie
    version: int
    """The version of the stored cookie; ``NEW`` if none is stored."""
    cookies: tuple[FoundCookie, ...]


def problems(master: Cookie, found: FoundCookie) -> Iterator[CookieDifference]:
    """Yield the differences between a cookie and the cookie of the settings and the cluster."""
    if found.cookie is None:
        yield CookieDifference("cookie", "one", found.problem, found.place)
        return
    yield from cookie_differences(master, found.cookie, place=found.place)


def verify(session: Session) -> None:
    """Compare all cookies of a bookie with its settings.

    Raises:
        ProblemsError: a cookie differs from the settings.
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
            "changed id; for an emptied directory, `bkctl disk check` says what to do",
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
    """Return the places to which the cookie must be written again.

    Raises:
        ConflictError: a cookie is of another bookie, cluster or set of directories.
        RefusedError: no correct cookie is left, or a directory is empty.
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
    """Show the places where a bookie's cookie is missing or old, ask, and write it there.

    Raises:
        RefusedError, ConflictError: as ``to_rewrite``; or the bookie runs, or the user declined.
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
    """Return the former path of each moved root; empty if the cookies disagree on the paths."""
    cookies = [one.cookie for one in seen.cookies]
    old = {
        attrs.evolve(one, layout_version=COOKIE_VERSION)
        for one in cookies
        if one is not None and cookie_differences(seen.master, one)
    }
    if None in cookies or len(old) != 1:
        return {}
    has_shards = seen.bookie.config.storage_class is StorageClass.DB
    return former_paths(seen.master, old.pop(), has_shards=has_shards)


def _places_of(seen: _BookieOnDisk) -> tuple[str, ...]:
    """Return the places of other cookies.

    The stored cookie last, so that a rerun finds them all.
    """
    bad = [one.place for one in seen.cookies if any(problems(seen.master, one))]
    return tuple(sorted(bad, key=lambda place: place == STORED))


def _write(seen: _BookieOnDisk, places: tuple[str, ...]) -> None:
    text = encode_cookie(seen.master)
    for place in places:
        if place == STORED:
            seen.bookie.stored.write(text, seen.version)
        else:
            RealFiles().write_atomic(Path(place), text)


_SEVERAL: Final = "move one directory at a time, and run this command after each"


def former_paths(new: Cookie, old: Cookie, *, has_shards: bool) -> dict[Path, Path]:
    """Return the former path of each moved root by its new path; empty if no root was moved.

    All cookies of a bookie have the same text, so a cookie does not name its own directory. A move
    is accepted if each directory has its old cookie, the paths show clearly which directory was
    moved where, and each directory has the contents of its former path. With ``has_shards`` a
    ledger is found by the number of its directory, as in DbLedgerStorage.

    Raises:
        RefusedError: the paths do not show which directory was moved where.
    """
    if attrs.evolve(_without_directories(new), layout_version=old.layout_version) != (
        _without_directories(old)
    ):
        return {}
    before, now = _lists(old), _lists(new)
    if [len(one) for one in before] != [len(one) for one in now]:
        return {}
    former: dict[Path, Path] = {}
    for number, (was, is_now) in enumerate(zip(before, now, strict=True)):
        pairs = [(path, root) for path, root in zip(was, is_now, strict=True) if path != root]
        # A journal finds its own last mark by its number.
        if len(pairs) > 1 and (has_shards or number == 0):
            raise RefusedError(
                f"{counted(len(pairs), 'directory')} changed places in one list, and which one "
                "was moved where cannot be checked",
                next_step=_SEVERAL,
            )
        for path, root in pairs:
            if former.setdefault(root, path) != path:
                raise RefusedError(f"{root} would be two directories", next_step=_SEVERAL)
    known = {path for one in before for path in one}
    taken = sorted(root for root in former if root in known)
    if taken or len(set(former.values())) != len(former):
        where = taken[0] if taken else min(former.values())
        raise RefusedError(f"{where} was another directory of this bookie", next_step=_SEVERAL)
    return former


def _without_directories(cookie: Cookie) -> Cookie:
    return attrs.evolve(cookie, journal_dirs="", ledger_dirs=(), index_dirs=None)


def _lists(cookie: Cookie) -> tuple[tuple[Path, ...], ...]:
    ledgers = cookie.ledger_dirs
    names = (cookie.journal_dirs.split(","), ledgers, cookie.index_dirs or ledgers)
    return tuple(tuple(map(Path, one)) for one in names)


def refuse_other_contents(found: Directories, former: Mapping[Path, Path]) -> None:
    """Refuse directories without the contents of their former paths.

    Raises:
        RefusedError: a directory was emptied, exchanged, or copied in part.
    """
    files = RealFiles()
    for root, path in former.items():
        if foreign := foreign_contents(files, found, root):
            raise RefusedError(
                f"{root} holds {' and '.join(foreign)}, but the settings name it for other data",
                next_step="was it exchanged with another directory?",
            )
        if (missing := next(_missing(path, root), None)) is not None:
            raise RefusedError(
                f"{root} is not a complete copy of {path}: {missing} is missing or differs",
                next_step=f"copy the directory again while the bookie is stopped, or remove {path}",
            )
    for loss in losses(files, found, former):
        raise RefusedError(str(loss.error))


def _missing(path: Path, root: Path) -> Iterator[Path]:
    """Yield the files of the former path that its copy lacks or has in another size."""
    try:
        is_copied = decode_cookie((path / CURRENT / VERSION).read_bytes()) == decode_cookie(
            (root / CURRENT / VERSION).read_bytes()
        )
    except (OSError, FormatError):
        return
    for file in path.rglob("*") if is_copied else ():
        name = file.relative_to(path)
        if file.is_file() and name != Path(LOCK) and not _is_copied(file, root / name):
            yield name


def _is_copied(file: Path, copy: Path) -> bool:
    return copy.is_file() and copy.stat().st_size == file.stat().st_size
