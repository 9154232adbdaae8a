"""``bkctl config``: what settings files say, and what comes of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from bkctl.cli.command import SubGroup
from bkctl.exit_status import Effect, ExitStatus

if TYPE_CHECKING:
    from bkctl.session.session import Session

config = SubGroup(
    name="config",
    short_help="Settings files: check, explain, compare, show.",
    help="Settings files: check, explain, compare, and what is in effect.",
    order=("check", "explain", "diff", "show"),
)


@config.command(
    "check",
    effect=Effect.READ,
    examples=(
        ("bkctl config check bk_server.conf", "what bookied would say about it"),
        ("bkctl config check client.conf --for client", "a client's file"),
        ("bkctl config check bk_server.conf --strict -o json", "unknown keys are errors"),
    ),
    exits=(ExitStatus.NOT_FOUND, ExitStatus.WARNINGS, ExitStatus.PROBLEMS),
    replaces="nothing in Java's tools, which ignore unknown keys; as bookied --check-config",
)
@click.argument("path", metavar="[FILE]", type=click.Path(), required=False)
@click.option(
    "--for", "side", type=click.Choice(["bookie", "client"]), default="bookie", show_default=True,
    help="The program that reads the file.",
)  # fmt: skip
@click.option("--strict", is_flag=True, help="An unknown key is an error.")
@click.pass_obj
def check(session: Session, *, path: str | None, side: str, strict: bool) -> None:
    """Check a settings file; without FILE, that of -c or of this host.

    Status 10 says that the file would be refused, 9 that there are warnings.
    """
    from bkctl.commands.settings import config_work

    config_work.check(session, path, side, strict=strict)


@config.command(
    "explain",
    effect=Effect.READ,
    watch=False,
    examples=(
        ("bkctl config explain gcWaitTime", "what it does, its default, and what is allowed"),
        ("bkctl config explain 'journal*'", "all of a kind"),
        ("bkctl config explain --use refused -o id", "keys that a file must not have"),
    ),
    exits=(ExitStatus.NOT_FOUND,),
    replaces="nothing in Java's tools: its reference page",
)
@click.argument("keys", metavar="[KEY]...", nargs=-1)
@click.option(
    "--use", type=click.Choice(["honoured", "no effect", "warned", "refused"]),
    help="Only keys with this use, even if only for some values.",
)  # fmt: skip
@click.pass_obj
def explain(session: Session, *, keys: Sequence[str], use: str | None) -> None:
    """Explain keys of settings files, Java's and older names; without KEY, all.

    Each key is honoured, has no effect here, is warned about, or is refused where going on without
    it would lose safety.
    """
    from bkctl.commands.settings import config_work

    config_work.explain(session, keys, use)


@config.command(
    "diff",
    effect=Effect.READ,
    examples=(
        ("bkctl config diff bk1.conf bk2.conf", "keys that differ, whatever their order"),
        ("bkctl config diff bk_server.conf", "what is not as by default"),
    ),
    exits=(ExitStatus.NOT_FOUND,),
    replaces="nothing in Java's tools",
)
@click.argument("first", metavar="FILE", type=click.Path())
@click.argument("second", metavar="[FILE]", type=click.Path(), required=False)
@click.pass_obj
def diff(session: Session, *, first: str, second: str | None) -> None:
    """Compare the values of two settings files, or of one with the defaults.

    What is the same in other words (yes and true, another order, a default written out) is no
    difference.
    """
    from bkctl.commands.settings import config_work

    config_work.diff(session, first, second)


@config.command(
    "show",
    effect=Effect.READ,
    examples=(
        ("bkctl config show", "what this command line would set, in the form of a file"),
        ("bkctl config show --origin", "and the flag, variable, profile or line each is from"),
        ("bkctl config show --all --for bookie -c bk_server.conf", "every setting of a bookie"),
    ),
    exits=(ExitStatus.NOT_FOUND,),
    replaces="nothing in Java's tools",
)
@click.option("--origin", is_flag=True, help="Show the source of each value.")
@click.option("--all", "every", is_flag=True, help="Show values equal to the default, too.")
@click.option(
    "--for", "side", type=click.Choice(["client", "bookie"]), default="client", show_default=True,
    help="Settings of the client or of the bookie.",
)  # fmt: skip
@click.pass_obj
def show(session: Session, *, origin: bool, every: bool, side: str) -> None:
    """Show the settings in effect. Secrets are masked.

    What is said first counts: flag, environment, profile, settings file, default.
    """
    from bkctl.commands.settings import config_work

    config_work.show(session, side, origin=origin, every=every)
