"""``bkctl disk lock-status``: who works in a bookie's directories."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from bkctl.command import Effect
from bkctl.disk import directory_options, disk
from bkctl.exit_status import ExitStatus

if TYPE_CHECKING:
    from bkctl.session import Session


@disk.command(
    "lock-status",
    short_help="Tell who uses a bookie's directories.",
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
    """Tell who uses a bookie's directories.

    A running bookied holds a lock on each. A Java bookie holds none: it is found by the files that
    it has open, which only its own user and root can see, and leaves the file DIRTY as a sign.
    """
    from bkctl import disk_dirs
    from bkctl.errors import ProblemsError

    found = disk_dirs.directory_states(disk_dirs.find_directories(session, **dirs))
    session.emit_all(found, disk_dirs.DirectoryState)
    used = [str(one.use.root) for one in found if one.use.is_used]
    if fail_if_any and used:
        raise ProblemsError(f"in use: {', '.join(used)}", next_step="stop that bookie first")
