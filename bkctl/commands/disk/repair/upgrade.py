"""`disk upgrade`: the steps between parsed options and printed values."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import click

from bkctl.bookies import directories
from bkctl.bookies.stopped_bookie import (
    StoppedBookie,
    lock_existing,
    refuse_registered,
    repeatable,
    stopped_bookie,
)
from bkctl.errors import ProblemsError
from bkctl.exit_status import Effect
from bkctl.output.units import counted, human_bytes
from bkctl.output.views import BOOKIE, Column, Kind, field, shown
from bkctl.session.session import Session
from bookied.directories.cookie_check import master_cookie
from bookied.offline.repair.old_layout import RootLayout, RootState, read_layouts
from bookied.offline.repair.upgrade import BookieRoots, Finalization, LayoutUpgrade, Rollback
from bookied.storage.files.files import RealFiles
from wire.ids import BookieId
from wire.records.cookie import COOKIE_VERSION

EMPTY_DIRECTORY: Final = "empty-directory"
"""The safety check that no root is empty if other roots have an old layout."""

AGAIN: Final = "run the same command again: it continues where this one stopped"


def upgrade_or_back(session: Session, /, *, force: Sequence[str], **actions: bool) -> None:
    """Convert a stopped bookie's directories from the layout of an old release, or back."""
    chosen = [name.removesuffix("_") for name, is_given in actions.items() if is_given]
    if len(chosen) != 1:
        only = "only " if chosen else ""
        raise click.UsageError(f"{only}one of --upgrade, --rollback, --finalize, --check is needed")
    if chosen == ["check"]:
        check(session)
    elif chosen == ["upgrade"]:
        upgrade(session, force)
    elif chosen == ["rollback"]:
        rollback(session)
    else:
        finalize(session)


@shown(
    "directories",
    Column("directory", "The directory.", lambda v: str(v.layout.root)),
    Column(
        "state",
        "State of the directory: current, old, upgraded (the old data still exists), "
        "empty, old cookie, half rolled back, half finalized.",
    ),
    Column("layout", "Version of the directory's layout.", "layout.version", Kind.COUNT),
    Column(
        "started",
        "Whether a bookie has begun a journal in the directory since the upgrade.",
        "layout.has_new_journal",
        Kind.FLAG,
        rank=2,
    ),
)
class RootStatus:
    """One root's layout, and its state for the bookie."""

    layout: RootLayout

    @property
    def state(self) -> str:
        root = self.layout
        if root.is_finalizing:
            return "half finalized"
        if root.rolled_back and root.state is RootState.UPGRADED:
            return "half rolled back"
        if root.state is RootState.CURRENT and root.cookie is not None:
            return "current" if root.version == COOKIE_VERSION else "old cookie"
        return root.state.value


_DONE: Final = {
    "upgrade": ("upgraded", "nothing to upgrade: the layout is current"),
    "rollback": ("rolled back to its old layout", "nothing to roll back: it is not upgraded"),
    "finalize": ("finalized: the old data is removed", "nothing to finalize: no old data is left"),
}


def _layout_changed(v: LayoutChanged) -> str:
    done, nothing = _DONE[v.action]
    then = f"\n{v.next_step}" if v.next_step else ""
    return f"bookie {v.bookie_id} {done}{then}" if v.changed else nothing


@shown("upgrades", sentence=_layout_changed)
class LayoutChanged:
    """The result for a bookie's directories; ``changed`` is False if they were unchanged."""

    bookie_id: BookieId = field(BOOKIE)
    action: str = field("upgrade, rollback or finalize.")
    changed: bool = field("Whether anything was changed.")
    files: int = field("Files linked, copied or removed.")
    next_step: str = field("The next command to run.", of=lambda v: v.next_step or None)


def check(session: Session) -> None:
    """Show each root's layout; end with status 10 if a root needs an action."""
    found = directories.find_directories(session, (), (), ())
    roots = [RootStatus(root) for root in read_layouts(RealFiles(), found)]
    session.emit_all(roots, RootStatus)
    states = {root.state for root in roots}
    if states & {"old", "old cookie"}:
        raise ProblemsError(
            "the layout is old", next_step="`bkctl upgrade --upgrade` brings it up to date"
        )
    if "half rolled back" in states or "half finalized" in states:
        option = "--rollback" if "half rolled back" in states else "--finalize"
        raise ProblemsError(
            f"{option} was interrupted", next_step=f"`bkctl upgrade {option}` continues"
        )


def upgrade(session: Session, force: Sequence[str]) -> None:
    """Convert the directories to the current layout."""
    allow_empty = EMPTY_DIRECTORY in force
    with _at_work(session) as (bookie, roots, paths):
        work = LayoutUpgrade(roots)
        plan = work.plan(allow_empty=allow_empty)
        if session.plans_only(plan):
            return
        for line in plan:
            session.verbose(line)
        changed = work.run(allow_empty=allow_empty)
        _emit(session, bookie, "upgrade", paths, changed=changed)


def rollback(session: Session) -> None:
    """Restore the old data, after a confirmation."""
    with _at_work(session) as (bookie, roots, paths):
        work = Rollback(roots)
        losses = work.losses()
        lines = [
            f"{loss.root}: {counted(loss.files, 'file')} (journals, logs, indexes), "
            f"{human_bytes(loss.size_bytes)}"
            for loss in losses
        ]
        if session.plans_only([f"remove {line}" for line in lines] + ["remove the stored cookie"]):
            return
        if losses:
            session.confirm(
                ["What came after the upgrade will be lost:", *(f"  {line}" for line in lines)],
                f"Roll bookie {bookie.bookie_id} back to its old layout?",
                proof=bookie.bookie_id,
            )
        changed = work.run()
        _emit(session, bookie, "rollback", paths, changed=changed)


def finalize(session: Session) -> None:
    """Remove the old data, after a confirmation."""
    with _at_work(session) as (bookie, roots, paths):
        work = Finalization(roots)
        doomed = work.plan()
        if session.plans_only([f"remove {path}" for path in doomed]):
            return
        if doomed:
            files = counted(len(doomed), "file")
            going = f"{files} of the old layout will go; the upgraded data stays."
            session.confirm(
                [going],
                "Remove the way back to the old layout?",
                effect=Effect.REVERSIBLE,
            )
        changed = work.run()
        _emit(session, bookie, "finalize", paths, changed=changed)


_NEXT: Final = {
    "upgrade": "start the bookie, check that it works, then `bkctl upgrade --finalize`; "
    "`bkctl upgrade --rollback` goes back until then",
    "rollback": "the old release can be started",
    "finalize": "",
}


def _emit(
    session: Session, bookie: StoppedBookie, action: str, paths: list[Path], *, changed: bool
) -> None:
    next_step = _NEXT[action] if changed else ""
    session.emit(LayoutChanged(bookie.bookie_id, action, changed, len(paths), next_step))


@contextmanager
def _at_work(session: Session) -> Iterator[tuple[StoppedBookie, BookieRoots, list[Path]]]:
    bookie = stopped_bookie(session)
    paths: list[Path] = []
    with lock_existing(session, bookie.found, bookie.config):
        refuse_registered(session, bookie.bookie_id)
        instance_id = session.call(lambda client: client.store.instance_id())
        master = master_cookie(bookie.config, bookie.bookie_id, instance_id)
        with (
            repeatable(session, AGAIN),
            session.progress("files", unit="files") as progress,
        ):

            def tell(path: Path) -> None:
                paths.append(path)
                progress.update(len(paths))

            yield (
                bookie,
                BookieRoots(
                    RealFiles(),
                    bookie.found,
                    master,
                    bookie.stored,
                    lambda: secrets.token_hex(4),
                    tell,
                ),
                paths,
            )
