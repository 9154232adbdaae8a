"""The way back from an upgrade: taken by a rollback, removed by a finalization.

Agrees with BookKeeper 4.18.0, FileSystemUpgrade, as ``upgrade`` does. The same command again
finishes after a crash.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import attrs

from bookied.directories.emptied_directories import forget
from bookied.directories.roots import VERSION
from bookied.offline.repair.old_layout import (
    FINALIZING,
    ROLLED_BACK,
    RootLayout,
    RootState,
    is_any_old,
)
from bookied.offline.repair.upgrade import BookieRoots, UpgradeRefusedError
from bookied.storage.index.index_files.paths import remove_hollow


@attrs.frozen
class DiscardedFiles:
    """What a rollback throws away in one root: what came after the upgrade."""

    root: Path
    files: int
    size_bytes: int


@attrs.frozen
class Rollback:
    """The way back to the old data."""

    roots: BookieRoots

    def losses(self) -> list[DiscardedFiles]:
        """Return what a rollback throws away.

        Raises:
            UpgradeRefusedError: there is no way back. Otherwise as ``look``.
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
        """Go back to the old data; return False if no root was upgraded.

        Raises:
            UpgradeRefusedError: a root has no old data, or not all of it any more.
            MetadataStoreError: the cookie could not be removed: repeat. So for ``OSError``.
        """
        roots = self._reversible()
        held = self.roots.stored.read()
        self.roots.insist_stored(held)
        for root in roots:
            if root.state is not RootState.OLD:
                forget(self.roots.files, self.roots.found, root.root)
                self.roots.files.rename(
                    root.current, root.root / f"{ROLLED_BACK}{self.roots.names()}"
                )
            self.roots.files.sync_dir(root.root)
        if held is not None:
            self.roots.stored.remove(held.version)
        self.roots.discard(self.roots.layouts())
        return held is not None or any(root.state is not RootState.OLD for root in roots)

    def _reversible(self) -> list[RootLayout]:
        roots = self.roots.layouts()
        for root in roots:
            if root.is_finalizing:
                raise UpgradeRefusedError(
                    f"{root.root}: the upgrade was finalized; its old data is (partly) gone"
                )
            if not root.has_old and not self._is_made_empty(root):
                raise UpgradeRefusedError(
                    f"{root.root} holds no data of layout 1 or 2 to go back to; nothing was changed"
                )
        if not is_any_old(roots):
            raise UpgradeRefusedError("no root holds data of layout 1 or 2; nothing was changed")
        return [root for root in roots if root.state is not RootState.EMPTY]

    def _is_made_empty(self, root: RootLayout) -> bool:
        """Whether an upgrade made this root out of nothing, and nothing came into it since."""
        if root.state is RootState.EMPTY:
            return True
        return self.roots.files.list(root.current) == [VERSION]


@attrs.frozen
class Finalization:
    """The end of the way back: the old data goes."""

    roots: BookieRoots

    def plan(self) -> list[Path]:
        """Return the old files that ``run`` removes.

        Raises:
            UpgradeRefusedError: it would refuse. Otherwise as ``look``.
        """
        return [path for root in self._finalizable() for path in self._old_files(root)]

    def run(self) -> bool:
        """Remove the old data; return False if there is none.

        Raises:
            UpgradeRefusedError: not every root is upgraded, or no bookie has started since.
            OSError: not all is removed: repeat.
        """
        roots = self._finalizable()
        for root in roots:
            self.roots.files.write_atomic(root.root / FINALIZING, b"")
        for root in roots:
            for path in self._old_files(root):
                self.roots.files.remove(path)
                self.roots.tell(path)
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
        # Once it has begun it goes on: the old journals may be gone by now.
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
