"""The check at start that directories, cluster and configuration belong together, by cookies.

A cookie lists a bookie's directories, its id and its cluster's instance id. It is stored in the
metadata store and as ``VERSION`` in every directory. The check finds a lost or exchanged directory,
or a bookie under a new name, before the bookie can answer "no such entry" for an entry that it has
acknowledged. Agrees with BookKeeper 4.18.0, LegacyCookieValidation, with two exceptions: an empty
*journal* directory of a known bookie is refused even with ``allowStorageExpansion``; and a first
start that was interrupted between the directories and the store is completed, not refused.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

import attrs
from twisted.logger import Logger

from bkclient.metadata.errors import CookieNotFoundError
from bkclient.metadata.tree.store import MetadataStore
from bkclient.metadata.versions_and_watches import NEW, Versioned
from bookied.config.bookie import BookieConfig, StorageClass
from bookied.directories.bookie_id import Identity
from bookied.directories.emptied_directories import forget
from bookied.directories.last_journal_note import note_doubt
from bookied.directories.root_paths import check_paths
from bookied.directories.roots import COOKIE_BYTES_MAX, VERSION, Directories
from bookied.errors import BadCookieError, WrongIdentityError
from bookied.storage.files.files import Files, read_if_there
from wire.errors import FormatError
from wire.ids import BookieId
from wire.records.cookie import Cookie, cookie_differences, decode_cookie, encode_cookie

STAMPING: Final = "bookied.stamping"
"""A file beside ``current`` of the first directory while new cookies are written."""

_UNFINISHED: Final = re.compile(rf"{VERSION}\..*tmp")
"""The temporary file of ``Files.write_atomic``, left by a process that died."""

_FIXED: Final = "with DbLedgerStorage the ledger directories must keep their number and order"

_IF_FORMATTED: Final = (
    "if the cluster was formatted or removed: stop the bookies, then `bkctl cluster restore FILE`"
)
_IF_MOVED: Final = "if directories were moved to other paths: bkctl cookie repair -c FILE"

HighestLedger = Callable[[], Awaitable[int]]
"""Returns the highest id of all ledgers in the metadata."""

log = Logger()


def master_cookie(config: BookieConfig, bookie_id: BookieId, instance_id: str | None) -> Cookie:
    """Return the cookie of this configuration and cluster."""
    return Cookie(
        bookie_id=bookie_id,
        journal_dirs=",".join(config.journal_directories),
        ledger_dirs=config.ledger_directories,
        index_dirs=config.named_index_directories,
        instance_id=instance_id,
    )


async def check_cookies(
    config: BookieConfig,
    identity: Identity,
    found: Directories,
    *,
    store: MetadataStore,
    instance_id: str | None,
    files: Files,
    highest_ledger: HighestLedger,
    dry_run: bool = False,
) -> None:
    """Return if every cookie matches; write the cookies of a new bookie.

    With ``dry_run`` nothing is written. A new bookie may have a predecessor with the same id. So
    before its cookie, it notes that the fences of all ledgers up to ``highest_ledger`` may be
    unknown to it.

    Raises:
        OSError: the note cannot be written.
        WrongIdentityError: a cookie does not match, or is missing from a directory in use.
        BadCookieError: a VERSION file cannot be read.
        MetadataStoreError: the store failed.
    """
    check = _CookieCheck(
        master=master_cookie(config, identity.bookie_id, instance_id),
        # DbLedgerStorage finds a ledger by the number and order of its directories: with another
        # list the bookie would not find its ledgers. Java starts nevertheless.
        superset=config.allow_storage_expansion and config.storage_class is not StorageClass.DB,
        is_fixed=config.storage_class is StorageClass.DB,
        found=found,
        store=store,
        files=files,
        highest_ledger=highest_ledger,
    )
    check_paths(files, found)
    stored = await check.stored_cookie(identity.possible_ids)
    local = check.local_cookies()
    missing = [directory for directory in found.all_dirs if directory not in local]
    if stored is None:
        check.require_new(local, missing)
    else:
        check.require_known(stored.value, local, missing)
    if not dry_run:
        await check.write(stored, missing)


@attrs.frozen(kw_only=True)
class _CookieCheck:
    master: Cookie
    superset: bool
    is_fixed: bool
    found: Directories
    store: MetadataStore
    files: Files
    highest_ledger: HighestLedger

    async def stored_cookie(self, ids: Iterable[BookieId]) -> Versioned[Cookie] | None:
        """Return the stored cookie; a cookie under a former id must match, too."""
        stored = None
        for bookie_id in ids:
            try:
                held = await self.store.read_cookie(bookie_id)
            except CookieNotFoundError:
                continue
            place, cookie = decode_stored(bookie_id, held.value)
            self._require_match(place, cookie)
            stored = Versioned(cookie, held.version)
        return stored

    def local_cookies(self) -> dict[Path, Cookie]:
        """Return the cookie of each directory that has one; each must match."""
        local = local_cookies(self.files, self.found)
        for directory, cookie in local.items():
            self._require_match(str(directory / VERSION), cookie)
        return local

    def require_new(self, local: Iterable[Path], missing: list[Path]) -> None:
        # An interrupted first start of Java's bookie leaves directories with only a cookie.
        served = [one for one in local if set(self._data(one)) != {VERSION}]
        if (served or not missing) and not self._was_cut_short():
            where = "directories have one" if missing else "every directory has one"
            raise WrongIdentityError(
                f"the metadata store has no cookie of {self.master.bookie_id}, but {where}: was "
                "the bookie decommissioned, or is this another cluster? To start a "
                "decommissioned bookie as a new one, remove its data: bkctl disk format -c FILE"
            )
        self._require_empty(missing)

    def require_known(self, stored: Cookie, local: dict[Path, Cookie], missing: list[Path]) -> None:
        if missing and not self.superset:
            raise WrongIdentityError(
                f"{_names(missing)} lost its cookie: a directory was emptied or is not mounted; "
                "mount its disk, or see `bkctl explain BK-WRONG-IDENTITY`"
            )
        # An interrupted expansion wrote cookies with directories that were never used.
        vouching = () if self._was_cut_short() else tuple(local.values())
        known = set().union(*map(directories_of, (stored, *vouching)))
        lost = [directory for directory in missing if str(directory.parent) in known]
        if lost:
            raise WrongIdentityError(
                f"{_names(lost)} lost its cookie: this directory was in use before, and its files "
                "are missing; `bkctl explain BK-WRONG-IDENTITY` says what to do"
            )
        self._require_empty(missing)

    async def write(self, stored: Versioned[Cookie] | None, missing: list[Path]) -> None:
        """Write the cookies of a new bookie, or of a bookie with new directories."""
        if stored is None:
            log.info("a new bookie: cookies are written", bookie_id=self.master.bookie_id)
            await self._begin(missing, NEW)
        elif missing or cookie_differences(self.master, stored.value):
            log.info("directories are added: cookies are written", directories=missing)
            await self._begin(missing, stored.version)
        if self.files.exists(self._stamping):
            self.files.remove(self._stamping)

    async def _begin(self, missing: list[Path], version: int) -> None:
        """Write the cookies; remove the notes of directories that had none."""
        self.files.write_atomic(self._stamping, encode_cookie(self.master))
        for directory in missing:
            for name in filter(_UNFINISHED.fullmatch, self.files.list(directory)):
                self.files.remove(directory / name)
            forget(self.files, self.found, directory.parent)
        if version == NEW:
            note_doubt(self.files, self.found.journals, await self.highest_ledger())
        await self._stamp(version)

    async def _stamp(self, version: int) -> None:
        """Write the cookie to the directories, then to the store.

        With this order no directory lacks a cookie that is in the store.
        """
        cookie = encode_cookie(self.master)
        for directory in self.found.all_dirs:
            self.files.write_atomic(directory / VERSION, cookie)
        await self.store.write_cookie(BookieId(self.master.bookie_id), cookie, version)

    @property
    def _stamping(self) -> Path:
        return self.found.roots[0] / STAMPING

    def _was_cut_short(self) -> bool:
        return read_if_there(self.files, self._stamping) == encode_cookie(self.master)

    def _require_match(self, place: str, cookie: Cookie) -> None:
        different = cookie_differences(self.master, cookie, superset=self.superset, place=place)
        if different:
            fixed = f"; {_FIXED}" if self.is_fixed else ""
            fields = {one.field for one in different}
            moved = all(one.endswith("directories") for one in fields)
            formatted = _IF_FORMATTED if "instance id" in fields else ""
            raise WrongIdentityError(
                f"the cookies do not fit the configuration{fixed}",
                different,
                advice=_IF_MOVED if moved else formatted,
            )

    def _require_empty(self, directories: list[Path]) -> None:
        full = [directory for directory in directories if self._data(directory)]
        if full:
            raise WrongIdentityError(f"{_names(full)} has data but no cookie")

    def _data(self, directory: Path) -> list[str]:
        """Return the names in a directory, without unfinished cookies of a crash."""
        names = self.files.list(directory) if self.files.exists(directory) else []
        return [name for name in names if not _UNFINISHED.fullmatch(name)]


def local_cookies(files: Files, found: Directories) -> dict[Path, Cookie]:
    """Return the cookie of each directory that has one.

    Raises:
        BadCookieError: a VERSION file is not a valid cookie.
    """
    local = {}
    for directory in found.all_dirs:
        path = directory / VERSION
        try:
            local[directory] = decode_cookie(files.read(path, COOKIE_BYTES_MAX))
        except FileNotFoundError:
            continue
        except FormatError as error:
            raise BadCookieError(path, None, f"is not a cookie: {error}") from error
    return local


def decode_stored(bookie_id: BookieId, data: bytes) -> tuple[str, Cookie]:
    """Return a description of the stored cookie for messages, and the cookie.

    Raises:
        WrongIdentityError: the cookie cannot be read.
    """
    place = f"the stored cookie of {bookie_id}"
    try:
        return place, decode_cookie(data)
    except FormatError as error:
        raise WrongIdentityError(f"{place} cannot be read: {error}") from error


def directories_of(cookie: Cookie) -> Iterator[str]:
    """Yield the roots in a cookie; some may repeat."""
    yield from cookie.journal_dirs.split(",")
    yield from cookie.ledger_dirs
    yield from cookie.index_dirs or ()


def _names(directories: list[Path]) -> str:
    return ", ".join(map(str, directories))
