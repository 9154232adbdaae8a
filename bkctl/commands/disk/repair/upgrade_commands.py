"""``bkctl disk upgrade``, short ``bkctl upgrade``: from old releases' layouts to today's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from bkctl.commands.disk.commands import disk
from bkctl.exit_status import Effect, ExitStatus

if TYPE_CHECKING:
    from bkctl.session.session import Session


@disk.command(
    "upgrade",
    short_help="Upgrade directories of an old release, or roll back.",
    effect=Effect.LOSES_DATA,
    examples=(
        ("bkctl disk upgrade --check -c bk_server.conf", "which layout each directory has"),
        ("bkctl upgrade --upgrade -c bk_server.conf", "up to date; the old data stays beside it"),
        ("bkctl upgrade --rollback -c bk_server.conf", "back to the old data"),
        ("bkctl upgrade --finalize -c bk_server.conf", "delete the old data, after a good start"),
    ),
    exits=(
        ExitStatus.FAILED, ExitStatus.NOT_FOUND, ExitStatus.REFUSED, ExitStatus.UNREACHABLE,
        ExitStatus.CONFLICT, ExitStatus.PROBLEMS, ExitStatus.INTERRUPTED,
    ),
    replaces="bookkeeper upgrade --upgrade | --rollback | --finalize",
)  # fmt: skip
@click.option(
    "--upgrade", "upgrade_", is_flag=True,
    help="Make `current/` from data of layout 1 or 2, or complete the cookie of 3 or 4.",
)  # fmt: skip
@click.option(
    "--rollback", "rollback_", is_flag=True,
    help="Remove `current/` where the data of layout 1 or 2 is still there.",
)  # fmt: skip
@click.option(
    "--finalize", "finalize_", is_flag=True,
    help="Remove the data of layout 1 or 2, once a bookie has started since the upgrade.",
)  # fmt: skip
@click.option("--check", "check_", is_flag=True, help="Show the layout of each directory.")
@click.option(
    "--force", type=click.Choice(["empty-directory"]), multiple=True,
    help="Override a safety check by its name.",
)  # fmt: skip
@click.pass_obj
def upgrade(session: Session, /, *, force: Sequence[str], **actions: bool) -> None:
    """Bring a stopped bookie's directories from an old release's layout to today's, or back.

    The old data stays where it is until --finalize: journals and entry logs are shared by hard
    links, files that are rewritten are copied. A crash at any step leaves the old layout or the new
    one whole, and the same command again goes on.
    """
    from bkctl.commands.disk.repair import upgrade as work

    chosen = [name.removesuffix("_") for name, is_given in actions.items() if is_given]
    if len(chosen) != 1:
        only = "only " if chosen else ""
        raise click.UsageError(f"{only}one of --upgrade, --rollback, --finalize, --check is needed")
    if chosen == ["check"]:
        work.check(session)
    elif chosen == ["upgrade"]:
        work.upgrade(session, force)
    elif chosen == ["rollback"]:
        work.rollback(session)
    else:
        work.finalize(session)
