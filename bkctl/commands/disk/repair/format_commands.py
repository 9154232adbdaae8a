"""``bkctl disk format`` and ``init``: end a bookie's data, and begin anew.

``bookieformat`` is the first of them under Java's name and with Java's options.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from bkctl.cli.command import Command
from bkctl.commands.disk.commands import disk
from bkctl.exit_status import Effect, ExitStatus

if TYPE_CHECKING:
    from bkctl.session.session import Session

_FAILURES: Final = (
    ExitStatus.FAILED,
    ExitStatus.REFUSED,
    ExitStatus.UNREACHABLE,
    ExitStatus.INTERRUPTED,
)
_CHECKS: Final = ("registered", "metadata")


def _force(function: Any) -> Any:
    return click.option(
        "--force",
        type=click.Choice(_CHECKS),
        multiple=True,
        help="Override a safety check: registered, a bookie that looks alive; metadata, ask the "
        "metadata service nothing.",
    )(function)


@disk.command(
    "format",
    short_help="Remove all data of a stopped bookie.",
    effect=Effect.LOSES_DATA,
    examples=(
        ("bkctl disk format -c bk_server.conf", "shows what goes, and asks for the bookie's id"),
        ("bkctl disk format -c bk_server.conf --dry-run", "only shows it"),
        ("bkctl disk format -c bk_server.conf --delete-cookie --yes", "from a script, for good"),
    ),
    exits=_FAILURES,
    replaces="bookkeeper shell bookieformat [-nonInteractive] [-force] [-deleteCookie]",
)
@click.option(
    "--delete-cookie", is_flag=True,
    help="Then remove its cookie from the metadata service: the bookie may begin anew.",
)  # fmt: skip
@_force
@click.pass_obj
def format_(session: Session, *, delete_cookie: bool, force: Sequence[str]) -> None:
    """Remove all data of a stopped bookie: journals, entry logs, indexes, cookies.

    All directories of the settings are emptied. A crash in the middle leaves what no bookie starts
    on; the same command again ends it. The stored cookie goes last, and only if asked: while it is
    there, a bookie refuses to start on the empty directories.
    """
    from bkctl.commands.disk.repair import format as disk_format_work

    disk_format_work.format_bookie(session, delete_cookie=delete_cookie, force=force)


@click.command(
    "bookieformat",
    cls=Command,
    short_help="Short for `disk format`, with Java's options.",
    effect=Effect.LOSES_DATA,
    examples=(
        ("bkctl bookieformat -c bk_server.conf", "shows what goes, and asks for the bookie's id"),
        ("bkctl bookieformat -c bk_server.conf -nonInteractive -force", "from a script"),
        ("bkctl bookieformat -c bk_server.conf -n -f -d", "likewise, and the stored cookie too"),
    ),
    exits=_FAILURES,
    replaces="bookkeeper shell bookieformat [-nonInteractive] [-force] [-deleteCookie]",
)
@click.option(
    "-n", "-nonInteractive", "--noninteractive", "non_interactive", is_flag=True,
    help="Ask nothing: refuse if there is data, unless -force.  Like --no-input.",
)  # fmt: skip
@click.option("-f", "-force", "--force", "java_force", is_flag=True, help="Like --yes.")
@click.option(
    "-d", "-deleteCookie", "--delete-cookie", "--deletecookie", "delete_cookie", is_flag=True,
    help="Then remove its cookie from the metadata service.",
)  # fmt: skip
@click.pass_obj
def bookieformat(
    session: Session, *, non_interactive: bool, java_force: bool, delete_cookie: bool
) -> None:
    """Remove all data of a stopped bookie: `disk format` with Java's options.

    Against Java's: every directory counts for the question, a running bookie is refused, and the
    cookie goes only after the data is gone.
    """
    from bkctl.commands.disk.repair import format as disk_format_work

    session.options.no_input |= non_interactive
    session.options.yes |= java_force
    disk_format_work.format_bookie(session, delete_cookie=delete_cookie, force=())


@disk.command(
    "init",
    short_help="Check that a new bookie can begin.",
    effect=Effect.REVERSIBLE,
    examples=(
        ("bkctl disk init -c bk_server.conf", "checks only"),
        ("bkctl disk init -c bk_server.conf --write", "makes the directories and the cookie too"),
    ),
    exits=_FAILURES,
    replaces="bookkeeper shell initbookie",
)
@click.option("--write", is_flag=True, help="Make the directories and the cookie.")
@click.pass_obj
def init(session: Session, *, write: bool) -> None:
    """Make sure that a new bookie can begin: empty directories, no cookie, not registered.

    A new bookie makes its directories and cookie itself when it first starts; --write does so now.
    """
    from bkctl.commands.disk.repair import format as disk_format_work

    disk_format_work.init_bookie(session, write=write)
