"""`disk files` and `disk lock-status`: a bookie's files, and the process that uses them."""

from __future__ import annotations

from bkctl.bookies import directories as disk_dirs
from bkctl.bookies.directories import open_bookie
from bkctl.errors import ProblemsError
from bkctl.session.session import Session
from bookied.offline import files as offline_files


def files(
    session: Session, /, *, journal: bool, entrylog: bool, index: bool, **dirs: tuple[str, ...]
) -> None:
    """List a bookie's files, with their ids in decimal and hexadecimal."""
    kinds = {
        offline_files.journal_files: journal,
        offline_files.log_files: entrylog,
        offline_files.index_files_of: index,
    }
    bookie = open_bookie(session, **dirs)
    wanted = [listed for listed, chosen in kinds.items() if chosen] or list(kinds)
    rows = (one for listed in wanted for one in listed(bookie.files, bookie.found))
    session.emit_all(rows, offline_files.BookieFile)


def lock_status(session: Session, /, *, fail_if_any: bool, **dirs: tuple[str, ...]) -> None:
    """Show the process that uses a bookie's directories."""
    found = disk_dirs.directory_states(session, disk_dirs.find_directories(session, **dirs))
    session.emit_all(found, disk_dirs.DirectoryState)
    used = [str(one.use.root) for one in found if one.use.is_used]
    if fail_if_any and used:
        session.finish()
        raise ProblemsError(f"in use: {', '.join(used)}", next_step="stop that bookie first")
