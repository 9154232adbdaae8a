"""What ``bkctl disk lastmark`` does: every copy of every mark, and whether a start can go by it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from bkclient.config.findings import Severity
from bkctl.bookies.directories import open_bookie
from bkctl.commands.disk.inspect.records import DamagedRecords
from bkctl.errors import ProblemsError
from bkctl.output.views import Kind, column, shown
from bookied.offline.check.findings import DiskFinding
from bookied.offline.check.start import check_mark
from bookied.storage.journal.format import file_name

if TYPE_CHECKING:
    from bkctl.commands.disk.inspect.journals import Dirs
    from bkctl.session.session import Session
    from bookied.offline.bookie import StoredMark
    from bookied.offline.check.findings import DiskFinding


def lastmark(session: Session, /, *, check: bool, **dirs: tuple[str, ...]) -> None:
    """Print the marks: what lies before them is in entry logs and index, the rest is replayed."""
    damage = DamagedRecords(session)
    found = marks(session, dirs, damage, check=check)
    session.emit_all(found, MarkRow)
    if check:
        insist(found, damage)


@shown(
    "marks",
    column("path", "The copy.", lambda v: str(v.stored.path)),
    column(
        "journal",
        "Its journal directory's place in the list.",
        "stored.journal",
        Kind.COUNT,
        rank=3,
    ),
    column("journal_file", "The journal that it names.", header="FILE"),
    column("journal_id", "The same as a number.", "stored.mark.journal_id", Kind.COUNT, rank=2),
    column("offset", "Where in it replay begins.", "stored.mark.offset", Kind.COUNT),
    column("counts", "Whether it is the highest."),
    column(
        "problem",
        "What is wrong, with --check.",
        lambda v: v.problem.message if v.problem else None,
        rank=4,
        optional=True,
    ),
)
@attrs.frozen
class MarkRow:
    """One copy of a mark. ``problem`` is what a check of the one that counts has found."""

    stored: StoredMark
    counts: bool
    problem: DiskFinding | None = None

    @property
    def journal_file(self) -> str:
        return file_name(self.stored.mark.journal_id)


def marks(session: Session, dirs: Dirs, damage: DamagedRecords, *, check: bool) -> list[MarkRow]:
    """Return all copies; the highest of a journal directory counts."""
    bookie = open_bookie(session, **dirs)
    rows = []
    for stored in bookie.marks(report=damage):
        counts = stored.mark == bookie.highest_mark(stored.journal)
        found = list(check_mark(bookie, stored.journal, stored.mark)) if check and counts else []
        rows.append(MarkRow(stored, counts, found[0] if found else None))
    if not rows:
        session.note("no mark: the next start replays all journals")
    return rows


def insist(found: list[MarkRow], damage: DamagedRecords) -> None:
    """End with status 10 if replay cannot begin at the mark, or a copy is damaged.

    Raises:
        ProblemsError: one is.
    """
    for row in found:
        problem = row.problem
        if problem is not None and problem.severity is Severity.PROBLEM:
            raise ProblemsError(f"{problem.path}: {problem.message}", next_step=problem.fix)
    damage.finish()
