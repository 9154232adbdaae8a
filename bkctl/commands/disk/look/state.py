"""``bkctl disk lastmark``, ``files``, ``usage`` and ``lock-status``: how the directories stand."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from bkctl.commands.disk.commands import FAILURES, directory_options, disk
from bkctl.exit_status import Effect, ExitStatus

if TYPE_CHECKING:
    from bkctl.session.session import Session


@disk.command(
    "lastmark",
    short_help="Print the position where the next start begins to replay.",
    effect=Effect.READ,
    examples=(
        ("bkctl disk lastmark -c bk_server.conf", "every copy, and which of them counts"),
        ("bkctl disk lastmark --check -c bk_server.conf", "status 10 if no start can go by it"),
    ),
    exits=(*FAILURES, ExitStatus.PROBLEMS),
    replaces="bookkeeper shell lastmark",
)
@click.option("--check", is_flag=True, help="Also look whether the journals are there that far.")
@directory_options
@click.pass_obj
def lastmark(session: Session, /, *, check: bool, **dirs: tuple[str, ...]) -> None:
    """Print the marks: what lies before them is in entry logs and index, the rest is replayed."""
    from bkctl.commands.disk.look import marks_commands
    from bkctl.commands.disk.look.records import Damage

    damage = Damage(session)
    found = marks_commands.marks(session, dirs, damage, check=check)
    session.emit_all(found, marks_commands.MarkRow)
    if check:
        marks_commands.insist(found, damage)


@disk.command(
    "files",
    short_help="List a bookie's journals, entry logs and index files.",
    effect=Effect.READ,
    examples=(
        ("bkctl disk files -c bk_server.conf", "all of them"),
        ("bkctl disk files --journal -c bk_server.conf", "the journals"),
        ("bkctl disk files --entrylog -o csv -c bk_server.conf", "the entry logs, for a sheet"),
    ),
    exits=FAILURES,
    replaces="bookkeeper shell listfilesondisc -txn | -log | -idx",
)
@click.option("--journal", is_flag=True, help="Only journals.")
@click.option("--entrylog", is_flag=True, help="Only entry logs.")
@click.option("--index", is_flag=True, help="Only index files and databases.")
@directory_options
@click.pass_obj
def files(
    session: Session, /, *, journal: bool, entrylog: bool, index: bool, **dirs: tuple[str, ...]
) -> None:
    """List the files that a bookie has on its disks, with their ids both ways."""
    from bkctl.session.directories import open_bookie
    from bookied.offline import files as offline_files

    kinds = {
        offline_files.journal_files: journal,
        offline_files.log_files: entrylog,
        offline_files.index_files_of: index,
    }
    bookie = open_bookie(session, **dirs)
    wanted = [listed for listed, chosen in kinds.items() if chosen] or list(kinds)
    rows = (one for listed in wanted for one in listed(bookie.files, bookie.found))
    session.emit_all(rows, offline_files.BookieFile)


@disk.command(
    "usage",
    short_help="Print the space that is used, and what compaction would free.",
    effect=Effect.READ,
    examples=(
        ("bkctl disk usage -c bk_server.conf", "entry logs, those with most to free first"),
        ("bkctl disk usage --directories -c bk_server.conf", "room and use of each directory"),
        ("bkctl disk usage -o csv --columns log,dead_bytes -c bk_server.conf", "for a sheet"),
    ),
    exits=(*FAILURES, ExitStatus.PROBLEMS),
    replaces="nothing in Java's tools; activeledgers for one log at a time",
)
@click.option("--directories", is_flag=True, help="Print room and use by directory instead.")
@directory_options
@click.pass_obj
def usage(session: Session, /, *, directories: bool, **dirs: tuple[str, ...]) -> None:
    """Print for each entry log how much of it is live: of ledgers that the index still has.

    A log without live bytes is removed by the next collection, one below a threshold is rewritten
    by a compaction. What each would free is told at the end.
    """
    from bkctl.commands.disk.look import usage_commands
    from bkctl.commands.disk.look.records import Damage
    from bookied.offline.files import DirectoryUse
    from bookied.offline.logs import LogUse

    if directories:
        session.emit_all(usage_commands.directories(session, dirs), DirectoryUse)
        return
    damage = Damage(session)
    found = usage_commands.logs(session, dirs, damage)
    session.emit_all(found, LogUse)
    usage_commands.tell_sums(session, found)
    damage.finish()


@disk.command(
    "lock-status",
    short_help="Show the process that uses a bookie's directories.",
    effect=Effect.READ,
    examples=(
        ("bkctl disk lock-status -c bk_server.conf", "each directory, and who works in it"),
        (
            "bkctl disk lock-status -c bk_server.conf --fail-if-any",
            "status 10 if a bookie uses one of them, for scripts",
        ),
    ),
    exits=(ExitStatus.PROBLEMS,),
    replaces="nothing in Java's tools, which do not look whether a bookie runs",
)
@click.option("--fail-if-any", is_flag=True, help="Exit with 10 if any of them is in use.")
@directory_options
@click.pass_obj
def lock_status(session: Session, /, *, fail_if_any: bool, **dirs: tuple[str, ...]) -> None:
    """Show the process that uses a bookie's directories.

    A running bookied holds a lock on each. A Java bookie holds none: it is found by the files that
    it has open, which only its own user and root can see, and leaves the file DIRTY as a sign.
    """
    from bkctl.errors import ProblemsError
    from bkctl.session import directories as disk_dirs

    found = disk_dirs.directory_states(disk_dirs.find_directories(session, **dirs))
    session.emit_all(found, disk_dirs.DirectoryState)
    used = [str(one.use.root) for one in found if one.use.is_used]
    if fail_if_any and used:
        session.finish()
        raise ProblemsError(f"in use: {', '.join(used)}", next_step="stop that bookie first")
