"""Common code of the commands that change a stopped bookie's directories.

These commands take the locks of a running bookie, so that no bookie starts meanwhile. They refuse
if a bookie of either kind runs, or if the bookie could not read the files that they write.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs

from bkctl.bookies import directories as disk_dirs
from bkctl.errors import CommandError, NothingFoundError, RefusedError, UsageError
from bkctl.session.safety_check_names import REGISTERED
from bkctl.session.safety_checks import refuse_unless_forced, while_registered
from bookied.directories.bookie_id import RealHost, identify
from bookied.directories.cookie_check import check_cookies
from bookied.directories.highest_ledger import highest_ledger
from bookied.directories.lock import DirectoryLocks
from bookied.directories.root_paths import exchanged, exchanged_message
from bookied.directories.roots import CURRENT, Directories, directories
from bookied.directories.stored_cookie import CookieInStore
from bookied.directories.using_processes import TOOL, uses
from bookied.errors import CorruptError, DbRecordError, DirectoryInUseError, WrongIdentityError
from bookied.offline.repair.old_layout import read_cookie
from bookied.offline.settings import KEYS, OfflineConfig, metadata_cache, offline_config
from bookied.storage.files.files import RealFiles
from wire.ids import BookieId
from wire.records.cookie import Cookie

if TYPE_CHECKING:
    from bkclient.client import Client
    from bkctl.session.session import Session

_NEEDS: Final[dict[int | None, str]] = {
    errno.ENOSPC: "free space first; ",
    errno.EDQUOT: "free space first; ",
    errno.EROFS: "it must be writable; ",
    errno.EACCES: "its owner must run this; ",
}
"""The hint before a retry, by the error of the disk."""


@attrs.frozen
class StoppedBookie:
    """A bookie with known settings: its directories, its id, and its stored cookie."""

    config: OfflineConfig
    found: Directories
    bookie_id: BookieId
    metadata_cache: Path | None
    stored: CookieInStore


def stopped_bookie(session: Session) -> StoppedBookie:
    """Return the bookie of the settings; connect to its cluster when needed.

    Raises:
        UsageError: no settings are named or found.
        PropertiesError, ConfigError: the settings cannot be read.
        AddressError: the bookie's id cannot be determined from them.
    """
    properties = disk_dirs.bookie_properties(session, KEYS)
    config = offline_config(properties)
    cache = metadata_cache(properties)
    bookie_id = identify(config, config.port, RealHost()).bookie_id
    session.about = f"bookie {bookie_id}"
    return StoppedBookie(
        config=config,
        found=directories(config),
        bookie_id=bookie_id,
        metadata_cache=None if cache is None else Path(cache),
        stored=CookieInStore(bookie_id, lambda ask: session.call(lambda client: ask(client.store))),
    )


def stamp(
    session: Session, bookie: StoppedBookie, *, expand: bool = False, dry_run: bool = False
) -> None:
    """Write the bookie's cookie to its directories and to the cluster, as at its start.

    Args:
        session: the command's session.
        bookie: the bookie; its directories exist, and are locked.
        expand: add directories that are new and empty, whatever the settings allow.
        dry_run: check all of this, and write nothing.

    Raises:
        RefusedError: existing cookies do not match, or a directory is not empty.
    """
    config = attrs.evolve(
        bookie.config, allow_storage_expansion=expand or bookie.config.allow_storage_expansion
    )
    try:
        session.call(_stamp, config, bookie.found, dry_run)
    except WrongIdentityError as error:
        raise RefusedError(str(error)) from error


async def _stamp(
    client: Client,
    config: OfflineConfig,
    found: Directories,
    dry_run: bool,  # noqa: FBT001
) -> None:
    await check_cookies(
        config,
        identify(config, config.port, RealHost()),
        found,
        store=client.store,
        instance_id=await client.store.instance_id(),
        files=RealFiles(),
        highest_ledger=partial(highest_ledger, client.store),
        dry_run=dry_run,
    )


async def is_registered(client: Client, bookie_id: BookieId) -> bool:
    """Return whether a bookie is registered, writable or not."""
    return bookie_id in await client.store.registered_bookies()


def refuse_registered(
    session: Session, *bookies: BookieId, force: Collection[str] = (), instead: str = ""
) -> None:
    """Refuse registered bookies, unless ``force`` overrides the check ``REGISTERED``.

    Raises:
        RefusedError: a bookie is registered. Otherwise the errors of the metadata store.
    """
    running = [one for one in bookies if session.call(is_registered, one)]
    check = REGISTERED if force else ""
    refuse_unless_forced(session, while_registered(running, check, instead=instead), force)


@contextlib.contextmanager
def repeatable(session: Session, words: str) -> Iterator[None]:
    """Print ``words`` after an interruption, and after an error of the disk."""
    session.resume = words
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        raise CommandError(
            f"{place}{error.strerror or error}", next_step=_NEEDS.get(error.errno, "") + words
        ) from error
    except DbRecordError as error:
        if os.strerror(errno.ENOSPC) not in str(error):
            raise
        raise CommandError(str(error), next_step=_NEEDS[errno.ENOSPC] + words) from error
    session.resume = ""


def whole_bookie(
    session: Session, dirs: Any, *, journals: bool
) -> tuple[Directories, OfflineConfig | None]:
    """Return the directories to change, and the settings if no directory is named instead.

    Raises:
        UsageError: no ledger directory is named, or no journal although ``journals`` are needed.
        NothingFoundError: a root has no data in the current layout.
    """
    found = disk_dirs.find_directories(session, **dirs)
    config = None
    if not any(dirs.values()):
        config = offline_config(disk_dirs.bookie_properties(session, KEYS))
    if not found.ledger_dirs:
        raise UsageError("no ledger directory is named", next_step="name them with --ledger-dir")
    if journals and not found.journal_dirs:
        raise UsageError("no journal directory is named", next_step="name them with --journal-dir")
    require_current(found)
    _require_all(found)
    return found, config


def _require_all(found: Directories) -> None:
    """Refuse an incomplete list of a bookie's directories, another order, and exchanged ones.

    Data in missing directories would be treated as lost, and DbLedgerStorage finds a ledger by the
    number and the order of its directories. Paths may differ: directories were moved, or copied.

    Raises:
        RefusedError: no cookie in them matches, or directories were exchanged.
    """
    cookies = []
    for directory in found.all_dirs:
        with contextlib.suppress(CorruptError):  # A damaged cookie is ignored.
            cookies.append(read_cookie(RealFiles(), directory))
    for root, former in exchanged(RealFiles(), found):
        raise RefusedError(exchanged_message(root, former))
    known = [cookie for cookie in cookies if cookie is not None]
    if known and not any(_are_all(found, cookie) for cookie in known):
        wanted = known[0]
        index = f", --index-dir {' '.join(wanted.index_dirs)}" if wanted.index_dirs else ""
        raise RefusedError(
            "these are not all directories of the bookie, in the order of its cookie: "
            f"--ledger-dir {' '.join(wanted.ledger_dirs)}{index}, "
            f"--journal-dir {wanted.journal_dirs.replace(',', ' ')}",
            next_step="name all of them in this order, or -c FILE with its settings",
        )


def _are_all(found: Directories, cookie: Cookie) -> bool:
    """Return whether directories may be all those of a cookie; the journals may be left out."""
    indexes = cookie.index_dirs or cookie.ledger_dirs
    are_apart = indexes != cookie.ledger_dirs
    return (
        _may_be(found.ledgers, cookie.ledger_dirs)
        and _may_be(found.indexes, indexes)
        and (found.indexes != found.ledgers) == are_apart
        and (not found.journals or _may_be(found.journals, cookie.journal_dirs.split(",")))
    )


def _may_be(roots: Sequence[Path], names: Sequence[str]) -> bool:
    """Return whether roots may match names: as many, and in the same order if none moved."""
    paths = tuple(map(Path, names))
    return len(roots) == len(paths) and (tuple(roots) == paths or set(roots) != set(paths))


def require_current(found: Directories) -> None:
    """Refuse roots without data in the current layout.

    Raises:
        NothingFoundError: a root has no such data.
    """
    for root in found.roots:
        if not (root / CURRENT).is_dir():
            raise NothingFoundError(
                f"{root} has no {CURRENT}/",
                next_step="is its disk mounted? `bkctl upgrade --check` recognizes an old layout",
            )


@contextlib.contextmanager
def lock_existing(
    session: Session, found: Directories, config: OfflineConfig | None
) -> Iterator[None]:
    """Keep every bookie out of these existing roots during the block.

    ``config`` has the bookie's port, if it is known.

    Raises:
        NothingFoundError: a root does not exist.
        RefusedError: a bookie runs, or the files would get another owner.
    """
    for root in found.roots:
        if not root.is_dir():
            raise NothingFoundError(
                f"{root}: no such directory", next_step="is its disk mounted? Check the settings"
            )
    refuse_other_owner(found)
    with lock_or_make(session, found, config):
        yield


@contextlib.contextmanager
def lock_or_make(
    session: Session, found: Directories, config: OfflineConfig | None
) -> Iterator[None]:
    """Like ``lock_existing``, but create missing roots.

    Raises:
        RefusedError: a bookie runs.
    """
    refuse_use(session, found, config)
    locks = DirectoryLocks()
    try:
        locks.take(found.roots)
    except DirectoryInUseError as error:
        raise RefusedError(str(error), next_step="stop that bookie first") from error
    try:
        yield
    finally:
        locks.release()


def refuse_use(session: Session, found: Directories, config: OfflineConfig | None) -> None:
    """Refuse directories that a process uses, and a bookie whose port is taken.

    Raises:
        RefusedError: a directory or the port is in use.
    """
    for use in uses(found.roots, Path(session.host.proc)):
        if use.is_used:
            who = ", ".join(map(str, use.workers)) or "a running bookie"
            is_tool = any(worker.program.startswith(TOOL) for worker in use.workers)
            first = "wait until it has ended" if is_tool else "stop that bookie first"
            raise RefusedError(
                f"{use.root} is in use by {who}",
                next_step=f"{first}; `bkctl disk lock-status` shows the process",
            )
    if config is not None and config.port and _is_taken(config.port):
        raise RefusedError(
            f"port {config.port} is taken: the bookie runs, or another program has its port",
            next_step="stop it first",
        )


def _is_taken(port: int) -> bool:
    """Return whether a process listens on a port, on any address.

    False if binding is not allowed.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError as error:
            return error.errno == errno.EADDRINUSE
    return False


def refuse_other_owner(found: Directories) -> None:
    """Refuse to create files that the bookie could not open.

    Raises:
        RefusedError: root would write into another user's directories.
    """
    if os.geteuid() != 0:
        return
    for root in found.roots:
        current = root / CURRENT
        owner = (current if current.is_dir() else root).stat().st_uid
        if owner != 0:
            raise RefusedError(
                f"{root} belongs to user {_name(owner)}, which could not open files that root "
                "writes there",
                next_step=f"run the command as that user: sudo -u {_name(owner)} bkctl ...",
            )


def _name(user_id: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(user_id).pw_name
    except KeyError:
        return f"#{user_id}"


def warn_damage(session: Session, damaged: Iterable[CorruptError]) -> int:
    """Warn about each unreadable object; return their number."""
    count = 0
    for error in damaged:
        session.warn(f"not readable: {error}")
        count += 1
    return count
