"""Cookie checks of a bookie with data integrity: a wrong cookie leads to a repair, not to a stop.

Agrees with BookKeeper 4.18.0, DataIntegrityCookieValidation: all fields of the cookies are
compared. If only the metadata lacks the cookie, an operator must decide. New cookies are written
only after the ledgers that may lack data are in limbo.
"""

from __future__ import annotations

from pathlib import Path

import attrs

from bkclient.metadata.errors import CookieNotFoundError
from bkclient.metadata.tree.store import MetadataStore
from bkclient.metadata.versions_and_watches import NEW, Version
from bookied.config.bookie import BookieConfig
from bookied.directories.bookie_id import Identity
from bookied.directories.cookie_check import (
    HighestLedger,
    decode_stored,
    local_cookies,
    master_cookie,
)
from bookied.directories.emptied_directories import forget_loss, losses
from bookied.directories.last_journal_note import note_doubt
from bookied.directories.root_paths import check_paths
from bookied.directories.roots import VERSION, Directories
from bookied.errors import WrongIdentityError
from bookied.storage.files.files import Files
from wire.ids import BookieId
from wire.records.cookie import Cookie, CookieDifference, cookie_differences, encode_cookie


@attrs.frozen
class StaleCookies:
    """The differences between the cookies, and the version of the cookie in the metadata."""

    reason: str
    version: Version


@attrs.frozen(kw_only=True)
class IntegrityCookies:
    """The cookies of a bookie that repairs itself."""

    config: BookieConfig
    identity: Identity
    found: Directories
    store: MetadataStore
    instance_id: str | None
    files: Files
    highest_ledger: HighestLedger

    async def check(self) -> StaleCookies | None:
        """Return the differences between the cookies, None if they agree.

        Write a new bookie's cookies.

        Raises:
            WrongIdentityError: an operator must decide: the cluster has no id, or the metadata
                has no cookie; directories were exchanged; or the settings forbid new cookies
                (``dataIntegrityStampMissingCookies``).
            BadCookieError: a VERSION file cannot be read.
            MetadataStoreError: the store failed.
            OSError: a directory cannot be read or written.
        """
        if self.instance_id is None:
            raise WrongIdentityError("the cluster has no instance id, which integrity checks need")
        check_paths(self.files, self.found)
        master, local = self._master, local_cookies(self.files, self.found)
        try:
            stored = await self.store.read_cookie(self._id)
        except CookieNotFoundError:
            await self._stamp_new(local)
            return None
        differing = self._differences(master, stored.value, local)
        if not differing:
            return None
        if not self.config.stamp_missing_cookies:
            raise WrongIdentityError(
                "the cookies do not fit the configuration; dataIntegrityStampMissingCookies=true "
                "lets the bookie copy missing entries from other bookies and write new cookies",
                differing,
            )
        await self._note_doubt()
        return StaleCookies("; ".join(map(str, differing)), stored.version)

    async def stamp(self, version: Version) -> None:
        """Write the cookie to the metadata, then to each directory.

        If this is interrupted, the next check finds the difference again. The data that the
        directories lost is replaced, or noted elsewhere, before this call.
        """
        cookie = encode_cookie(self._master)
        await self.store.write_cookie(self._id, cookie, version)
        for loss in list(losses(self.files, self.found)):
            forget_loss(self.files, self.found, loss)
        await self._note_doubt()
        for directory in self.found.all_dirs:
            self.files.write_atomic(directory / VERSION, cookie)

    @property
    def _id(self) -> BookieId:
        return BookieId(self._master.bookie_id)

    @property
    def _master(self) -> Cookie:
        return master_cookie(self.config, self.identity.bookie_id, self.instance_id)

    async def _stamp_new(self, local: dict[Path, Cookie]) -> None:
        if local:
            raise WrongIdentityError(
                f"the metadata store has no cookie of {self._id}, but directories have one: was "
                "the bookie decommissioned, or is this another cluster?"
            )
        await self.stamp(NEW)

    async def _note_doubt(self) -> None:
        """Note in the journal directories that fences of all existing ledgers may be lost."""
        note_doubt(self.files, self.found.journals, await self.highest_ledger())

    def _differences(
        self, master: Cookie, stored: bytes, local: dict[Path, Cookie]
    ) -> list[CookieDifference]:
        place, cookie = decode_stored(self._id, stored)
        differing = cookie_differences(master, cookie, place=place)
        for directory in self.found.all_dirs:
            where = str(directory / VERSION)
            if directory in local:
                differing += cookie_differences(master, local[directory], place=where)
            else:
                differing.append(CookieDifference("the whole cookie", "expected", "missing", where))
        return differing
