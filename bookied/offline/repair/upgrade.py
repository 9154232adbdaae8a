"""The upgrade of a stopped bookie's roots to the current layout, its rollback and finalization.

Agrees with BookKeeper 4.18.0, FileSystemUpgrade, except for the differences in storage.md sections
14 and 17 (D9). The cookie names the cluster. Files that are rewritten in place are copied rather
than shared. Roots without old data are not rolled back. After a crash at any step either the old or
the new layout is complete, and the same command finishes.

The caller has locked the directories and made sure that no bookie of either kind runs.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import ClassVar

import attrs

from bkclient.metadata.versions_and_watches import NEW, Versioned
from bookied.directories.emptied_directories import forget
from bookied.directories.roots import CURRENT, VERSION, Directories
from bookied.directories.stored_cookie import CookieInStore
from bookied.offline.repair.old_layout import (
    FINALIZING,
    ROLLED_BACK,
    UPGRADING,
    RootLayout,
    RootState,
    is_any_old,
    old_data,
    read_layouts,
)
from bookied.storage.files.files import Files, copy_file, link_or_copy, remove_tree
from bookied.storage.index.index_files.paths import remove_hollow
from wire.errors import BookKeeperError, FormatError
from wire.records.cookie import (
    COOKIE_VERSION,
    Cookie,
    cookie_differences,
    decode_cookie,
    encode_cookie,
)


class UpgradeRefusedError(BookKeeperError):
    """An upgrade cannot begin in the present state of the directories."""

    exit_status: ClassVar[int] = 4


@attrs.frozen
class BookieRoots:
    """One bookie's roots, their new cookie, and the stored cookie.

    ``progress`` gets each file that was processed. ``names`` returns the part of a directory's name
    that distinguishes attempts.
    """

    files: Files
    found: Directories
    master: Cookie
    stored: CookieInStore
    names: Callable[[], str]
    progress: Callable[[Path], None] = lambda _path: None

    def layouts(self) -> list[RootLayout]:
        """Return the layout of every root; see ``read_layouts``."""
        return read_layouts(self.files, self.found)

    def all_files(self, directory: Path) -> tuple[Path, ...]:
        """Return all files of a bookie in a directory."""
        data = old_data(self.files, directory)
        return (*data.rewritten, *data.shared)

    def discard(self, layouts: Sequence[RootLayout]) -> None:
        """Remove the directories of earlier attempts."""
        for layout in layouts:
            for path in (*layout.upgrading, *layout.rolled_back):
                remove_tree(self.files, path)

    def require_stored(self, stored: Versioned[bytes] | None) -> Cookie | None:
        """Return the stored cookie.

        Raises:
            UpgradeRefusedError: the cookie is another bookie's, or cannot be read.
        """
        if stored is None:
            return None
        place = f"the stored cookie of {self.master.bookie_id}"
        try:
            cookie = decode_cookie(stored.value)
        except FormatError as error:
            raise UpgradeRefusedError(f"{place} cannot be read: {error}") from error
        self.require_cookie(place, cookie)
        return cookie

    def require_cookie(self, place: str, cookie: Cookie) -> None:
        """Refuse a cookie of another bookie.

        Accept one without a cluster, which the upgrade adds.
        """
        completed = attrs.evolve(cookie, instance_id=cookie.instance_id or self.master.instance_id)
        different = cookie_differences(self.master, completed, place=place)
        if different:
            raise UpgradeRefusedError(
                "; ".join(["the cookies do not fit the configuration", *map(str, different)])
            )


@attrs.frozen
class LayoutUpgrade:
    """The upgrade to the current layout."""

    roots: BookieRoots

    def plan(self, *, allow_empty: bool = False) -> list[str]:
        """Return the steps of ``run``; empty if all roots are current.

        Raises:
            UpgradeRefusedError: ``run`` would refuse.
            CorruptError, OSError: as for ``read_layouts``.
        """
        roots = self._upgradable(allow_empty=allow_empty)
        steps = []
        for root in roots:
            if root.state is RootState.OLD:
                data = old_data(self.roots.files, root.root)
                steps.append(
                    f"{root.root}: link {len(data.shared)} journals and logs of layout "
                    f"{root.version}, copy {len(data.rewritten)} marks and indexes, into {CURRENT}/"
                )
            elif root.state is RootState.EMPTY and is_any_old(roots):
                steps.append(f"{root.root}: make an empty {CURRENT}/ with a cookie")
        steps += [
            f"{root.current / VERSION}: write the cookie in layout {COOKIE_VERSION}"
            for root in self._to_stamp(roots)
        ]
        if self._must_store(roots):
            steps.append(
                f"store the cookie of {self.roots.master.bookie_id} in the metadata service"
            )
        return steps

    def run(self, *, allow_empty: bool = False) -> bool:
        """Upgrade every root to the current layout; return False if all roots were current.

        The old data is kept. The files that a bookie reads change only after everything is
        prepared.

        Raises:
            UpgradeRefusedError: a root cannot be upgraded.
            MetadataStoreError: the cookie could not be stored: repeat.
            OSError: likewise; if the disk is full, nothing is changed.
        """
        roots = self._upgradable(allow_empty=allow_empty)
        moves = [
            root
            for root in roots
            if root.state is RootState.OLD or (root.state is RootState.EMPTY and is_any_old(roots))
        ]
        stamps, must_store = self._to_stamp(roots), self._must_store(roots)
        self.roots.discard(roots)
        prepared = [(root, self._prepare(root)) for root in moves]
        for root, temporary in prepared:
            self.roots.files.rename(temporary, root.current)
            self.roots.files.sync_dir(root.root)
        for root in stamps:
            self.roots.files.write_atomic(root.current / VERSION, encode_cookie(self.roots.master))
        if must_store:
            stored = self.roots.stored.read()
            self.roots.stored.write(
                encode_cookie(self.roots.master), NEW if stored is None else stored.version
            )
        return bool(moves or stamps or must_store)

    def _upgradable(self, *, allow_empty: bool) -> list[RootLayout]:
        roots = self.roots.layouts()
        is_upgrading = is_any_old(roots)
        half_back = any(root.rolled_back for root in roots)
        if half_back and any(root.state is RootState.UPGRADED for root in roots):
            raise UpgradeRefusedError(
                "a rollback has begun here and has not ended: finish it with --rollback first"
            )
        for root in roots:
            self._require_upgradable(root, is_upgrading=is_upgrading, allow_empty=allow_empty)
        self.roots.require_stored(self.roots.stored.read())
        return roots

    def _require_upgradable(
        self, root: RootLayout, *, is_upgrading: bool, allow_empty: bool
    ) -> None:
        if root.state is RootState.EMPTY:
            foreign = [
                name
                for name in (
                    self.roots.files.list(root.root) if self.roots.files.exists(root.root) else ()
                )
                if name.endswith((".txn", ".idx", ".log"))
            ]
            if foreign:
                raise UpgradeRefusedError(
                    f"{root.root / foreign[0]} is not a bookie's file, but its name ends like "
                    "one: move it away"
                )
            if is_upgrading and not allow_empty:
                raise UpgradeRefusedError(
                    f"{root.root} is empty, but other roots have data of an old layout: is its "
                    "disk mounted? With --force empty-directory it becomes a new, empty directory"
                )
        elif root.state in {RootState.UPGRADED, RootState.CURRENT}:
            if root.cookie is None:
                is_new = root.state is RootState.CURRENT and not self.roots.files.list(root.current)
                if is_new and not is_upgrading:
                    return  # A new bookie's: it gets its cookie when it starts.
                raise UpgradeRefusedError(
                    f"{root.current} has no {VERSION}: it is not a bookie's directory"
                )
            self.roots.require_cookie(str(root.current / VERSION), root.cookie)
            if (
                is_upgrading
                and root.state is RootState.CURRENT
                and root.cookie != self.roots.master
            ):
                raise UpgradeRefusedError(
                    f"{root.root} has layout {root.version}, but other roots have data of an "
                    "older one"
                )

    def _to_stamp(self, roots: Sequence[RootLayout]) -> list[RootLayout]:
        """Return the roots whose cookie is of an older layout, or names no cluster."""
        return [
            root for root in roots if root.cookie is not None and self._is_outdated(root.cookie)
        ]

    def _is_outdated(self, cookie: Cookie) -> bool:
        return (
            cookie.layout_version < COOKIE_VERSION
            or cookie.instance_id != self.roots.master.instance_id
        )

    def _must_store(self, roots: Sequence[RootLayout]) -> bool:
        cookie = self.roots.require_stored(self.roots.stored.read())
        if cookie is None:
            # A bookie without old data and stored cookie was decommissioned, or is new.
            return is_any_old(roots)
        return self._is_outdated(cookie)

    def _prepare(self, root: RootLayout) -> Path:
        """Create a directory with the complete contents of the new ``current``; return its path."""
        temporary = root.root / f"{UPGRADING}{self.roots.names()}"
        try:
            self.roots.files.mkdirs(temporary)
            made = {temporary}
            for path in (data := old_data(self.roots.files, root.root)).rewritten:
                made |= self._place(copy_file, path, root.root, temporary)
            for path in data.shared:
                made |= self._place(link_or_copy, path, root.root, temporary)
            for directory in sorted(made, key=lambda path: len(path.parts), reverse=True):
                self.roots.files.sync_dir(directory)
            self.roots.files.write_atomic(temporary / VERSION, encode_cookie(self.roots.master))
        except OSError:
            with contextlib.suppress(OSError):
                remove_tree(self.roots.files, temporary)
            raise
        return temporary

    def _place(
        self, put: Callable[[Files, Path, Path], None], path: Path, root: Path, temporary: Path
    ) -> set[Path]:
        """Copy or link a file to its new place.

        Return the directories that have new names in them.
        """
        target = temporary / path.relative_to(root)
        self.roots.files.mkdirs(target.parent)
        put(self.roots.files, path, target)
        self.roots.progress(path)
        return set(target.parents[: len(target.relative_to(temporary).parts)])


@attrs.frozen
class DiscardedFiles:
    """The files of one root that a rollback discards: those written after the upgrade."""

    root: Path
    files: int
    size_bytes: int


@attrs.frozen
class Rollback:
    """The rollback to the old data."""

    roots: BookieRoots

    def losses(self) -> list[DiscardedFiles]:
        """Return the files that a rollback discards.

        Raises:
            UpgradeRefusedError: a rollback is not possible. Other errors as for ``read_layouts``.
        """
        return [self._loss(root) for root in self._reversible() if root.state is RootState.UPGRADED]

    def _loss(self, root: RootLayout) -> DiscardedFiles:
        old = {path.relative_to(root.root) for path in self.roots.all_files(root.root)}
        new = [
            path
            for path in self.roots.all_files(root.current)
            if path.relative_to(root.current) not in old
        ]
        return DiscardedFiles(root.root, len(new), sum(self.roots.files.size(path) for path in new))

    def run(self) -> bool:
        """Roll back to the old data; return False if no root was upgraded.

        Raises:
            UpgradeRefusedError: a root has no old data, or only a part of it.
            MetadataStoreError, OSError: the cookie could not be removed, or a file error: repeat.
        """
        roots = self._reversible()
        stored = self.roots.stored.read()
        self.roots.require_stored(stored)
        for root in roots:
            if root.state is not RootState.OLD:
                forget(self.roots.files, self.roots.found, root.root)
                self.roots.files.rename(
                    root.current, root.root / f"{ROLLED_BACK}{self.roots.names()}"
                )
            self.roots.files.sync_dir(root.root)
        if stored is not None:
            self.roots.stored.remove(stored.version)
        self.roots.discard(self.roots.layouts())
        return stored is not None or any(root.state is not RootState.OLD for root in roots)

    def _reversible(self) -> list[RootLayout]:
        roots = self.roots.layouts()
        for root in roots:
            if root.is_finalizing:
                raise UpgradeRefusedError(
                    f"{root.root}: the upgrade was finalized; its old data is (partly) gone"
                )
            if not root.has_old and not self._is_made_empty(root):
                raise UpgradeRefusedError(
                    f"{root.root} has no data of layout 1 or 2 to go back to; nothing was changed"
                )
        if not is_any_old(roots):
            raise UpgradeRefusedError("no root has data of layout 1 or 2; nothing was changed")
        return [root for root in roots if root.state is not RootState.EMPTY]

    def _is_made_empty(self, root: RootLayout) -> bool:
        """Return whether an upgrade created this root empty, and the root is still empty."""
        if root.state is RootState.EMPTY:
            return True
        return self.roots.files.list(root.current) == [VERSION]


@attrs.frozen
class Finalization:
    """The finalization: the old data is removed, so that a rollback is no longer possible."""

    roots: BookieRoots

    def plan(self) -> list[Path]:
        """Return the old files that ``run`` removes.

        Raises:
            UpgradeRefusedError: ``run`` would refuse. Other errors as for ``read_layouts``.
        """
        return [path for root in self._finalizable() for path in self._old_files(root)]

    def run(self) -> bool:
        """Remove the old data; return False if there is none.

        Raises:
            UpgradeRefusedError: not every root is upgraded, or no bookie has started since.
            OSError: some files remain: repeat.
        """
        roots = self._finalizable()
        for root in roots:
            self.roots.files.write_atomic(root.root / FINALIZING, b"")
        for root in roots:
            for path in self._old_files(root):
                self.roots.files.remove(path)
                self.roots.progress(path)
            remove_hollow(self.roots.files, root.root)
            self.roots.files.sync_dir(root.root)
        for root in roots:
            self.roots.files.remove(root.root / FINALIZING)
            self.roots.files.sync_dir(root.root)
        return bool(roots)

    def _finalizable(self) -> list[RootLayout]:
        roots = self.roots.layouts()
        for root in roots:
            if root.state in {RootState.OLD, RootState.EMPTY}:
                raise UpgradeRefusedError(
                    f"{root.root} is not upgraded: `bkctl upgrade --upgrade` comes first"
                )
        ending = [root for root in roots if root.is_finalizing]
        journals = [root for root in roots if root.root in self.roots.found.journals]
        wanted = [root for root in roots if root.state is RootState.UPGRADED]
        # A finalization that has begun continues: the old journals may be gone by now.
        if wanted and not ending and not all(root.has_new_journal for root in journals):
            raise UpgradeRefusedError(
                "no bookie has started on these directories since the upgrade: start it once and "
                "check that it works"
            )
        return [root for root in roots if root in wanted or root in ending]

    def _old_files(self, root: RootLayout) -> Iterator[Path]:
        yield from self.roots.all_files(root.root)
        if self.roots.files.exists(root.root / VERSION):
            yield root.root / VERSION
