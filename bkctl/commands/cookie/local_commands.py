"""``bkctl cookie verify``, ``repair`` and ``rename``: the cookies of a stopped bookie."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from bkctl.cli.command import Command, Effect
from bkctl.exit_status import ExitStatus

if TYPE_CHECKING:
    from bkctl.session.session import Session

_FAILURES: Final = (ExitStatus.FAILED, ExitStatus.UNREACHABLE)
_REFUSED: Final = (*_FAILURES, ExitStatus.NOT_FOUND, ExitStatus.REFUSED, ExitStatus.CONFLICT)

LAZY: Final = {
    "verify": (
        "bkctl.commands.cookie.local_commands:verify",
        "Compare a bookie's cookies with its settings, field by field.",
    ),
    "repair": (
        "bkctl.commands.cookie.local_commands:repair",
        "Write a bookie's lost cookies again.",
    ),
    "rename": (
        "bkctl.commands.cookie.local_commands:rename",
        "Give a stopped bookie's cookies its new id.",
    ),
}
"""For the group they hang in."""


@click.command(
    "verify",
    cls=Command,
    short_help="Compare a bookie's cookies with its settings, field by field.",
    effect=Effect.READ,
    examples=(
        ("bkctl cookie verify -c bk_server.conf", "status 10 if one does not fit"),
        ("bkctl cookie verify -c bk_server.conf --json", "each difference, for programs"),
    ),
    exits=(*_FAILURES, ExitStatus.PROBLEMS),
    replaces="reading VERSION files and the log of a bookie that does not start",
)
@click.pass_obj
def verify(session: Session) -> None:
    """Compare the stored cookie and each VERSION file with the settings, field by field."""
    from bkctl.commands.cookie import stopped_bookie

    stopped_bookie.verify(session)


@click.command(
    "repair",
    cls=Command,
    short_help="Write a bookie's lost cookies again.",
    effect=Effect.REVERSIBLE,
    examples=(
        ("bkctl cookie repair -c bk_server.conf", "shows what would be written, and asks"),
        ("bkctl cookie repair -c bk_server.conf --dry-run", "only shows it"),
    ),
    exits=_REFUSED,
    replaces="bookkeeper shell cookie_generate, cookie_update and cookie_create, and copying files",
)
@click.pass_obj
def repair(session: Session) -> None:
    """Write the cookies of a stopped bookie anew where they are lost or damaged.

    One that fits the settings must be left, in the metadata service or in a directory. A directory
    that is empty is refused: what was on it is lost, and no cookie brings it back.
    """
    from bkctl.commands.cookie import stopped_bookie

    stopped_bookie.repair(session)


@click.command(
    "rename",
    cls=Command,
    short_help="Give a stopped bookie's cookies its new id.",
    effect=Effect.REVERSIBLE,
    examples=(
        ("bkctl cookie rename -c bk_server.conf", "as `bookie flip-id --no-ledgers`"),
        ("bkctl cookie rename --dry-run -c bk_server.conf", "only shows what would change"),
    ),
    exits=(*_REFUSED, ExitStatus.PARTLY),
    replaces="bookkeeper shell updatecookie -bookieId hostname | ip",
)
@click.pass_obj
def rename(session: Session) -> None:
    """Give the cookies of a stopped bookie the id of its settings; its ledgers keep the old one.

    `bkctl bookie flip-id` renames it in the ledgers too, which it needs to serve them.
    """
    from bkctl.commands.bookie import rename as bookie_change_work

    bookie_change_work.flip_id(session, None, rename=False)
