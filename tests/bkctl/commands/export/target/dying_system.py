"""A file system of pyarrow that fails, or whose process dies, at its n-th change."""

from __future__ import annotations

import contextlib
from typing import Any, Final

from bkctl.commands.export.target.arrow_file_systems import ArrowFiles
from bkctl.commands.export.target.export_commit import (
    STAGING_PREFIX,
    commit,
    load_tree,
    sweep_staging,
)
from bkctl.commands.export.target.file_systems import TargetFiles
from tests.bkctl.commands.export.target.test_export_commit import (
    AFTER,
    BEFORE,
    Killed,
    change,
    seed,
)

CHANGES: Final = ("copy_file", "delete_file", "delete_dir", "move", "open_output_stream")


class LostReplyError(OSError):
    """The change was made, and its answer was lost."""


class DyingSystem:
    """Passes all calls on; ``left`` changes are made, then ``error`` is raised.

    With a ``LostReplyError`` the change at which it is raised is made as well.
    """

    def __init__(self, system: Any, left: int, error: BaseException) -> None:
        self._system, self.left, self._error = system, left, error

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._system, name)
        if name not in CHANGES:
            return found

        def counted(*arguments: Any) -> Any:
            self.left -= 1
            # A process that has died makes no change any more; an error passes.
            if self.left == -1 or (self.left < 0 and isinstance(self._error, Killed)):
                if isinstance(self._error, LostReplyError) and name != "open_output_stream":
                    with contextlib.suppress(FileNotFoundError):
                        found(*arguments)
                raise self._error
            return found(*arguments)

        return counted


def shown(files: TargetFiles) -> dict[str, bytes | None]:
    """Return what a reader sees."""
    return {path: files.read(path) for path in files.sizes() if not path.startswith("_")}


def commit_that_is_stopped(system: Any, files: ArrowFiles, left: int, error: BaseException) -> bool:
    """Run a commit that stops after ``left`` changes; check what is there after the next start.

    Returns whether the commit was stopped at all.
    """
    before, after = ({k: v for k, v in one.items() if "_notes" not in k} for one in (BEFORE, AFTER))
    seed(files)
    decided = change(files, load_tree(files))
    dying = DyingSystem(system, left, error)
    is_stopped = False
    try:
        commit(ArrowFiles(files.uri, dying, files.root), decided)
    except (Killed, OSError):
        is_stopped = True
    found = load_tree(files)
    sweep_staging(files)
    assert shown(files) == (before if found.run == 1 else after)
    assert set(found.files) == set(shown(files))
    if not is_stopped:
        assert found.run == 2
    assert not [one for one in files.sizes() if STAGING_PREFIX in one or "commit.json" in one]
    return is_stopped


def check_every_step(
    system: Any, files: ArrowFiles, error: BaseException, *, stride: int = 1
) -> int:
    """Stop a commit at one change in ``stride``; return how many changes it has at least."""
    step = 0
    while commit_that_is_stopped(system, files.child(f"step-{step}"), step, error):
        step += stride
    return step
