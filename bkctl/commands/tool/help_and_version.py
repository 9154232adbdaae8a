"""What ``bkctl`` says of itself: version, help, and the script with which a shell completes.

The sections of the first screen are in ``bkctl.cli.command_names``.
"""

from __future__ import annotations

from collections.abc import Sequence

import click

from bkctl.cli.completion.scripts import SCRIPTS
from bkctl.cli.root import RootGroup
from bkctl.session.session import Session


def show_version(session: Session, *, every: bool) -> None:
    """Print the version of this tool, or of ``every`` member of the cluster.

    Raises:
        MetadataStoreError: the cluster cannot be asked for its members.
    """
    from bkctl.commands.tool.version import MemberVersion, own

    if not every:
        session.emit(own())
        return
    from bkctl.commands.tool.version import everybody

    with session.messages.waiting("waiting for the bookies' answers"):
        members = list(everybody(session))  # All, so that the columns fit all.
    session.emit_all(members, MemberVersion)


def print_script(session: Session, *, shell: str) -> None:
    """Print the script that makes a shell complete."""
    from bkctl.commands.tool.version import Script

    session.emit(Script(shell, SCRIPTS[shell]))


def show_help(session: Session, *, words: Sequence[str]) -> None:
    """Print the help of the command that ``words`` name.

    Raises:
        UsageError: there is no such command.
    """
    ctx, rest = click.get_current_context().find_root(), list(words)
    while rest and not rest[0].startswith("-"):
        if not isinstance(ctx.command, click.Group):
            raise click.UsageError(f"`{ctx.command_path}` has no command {rest[0]!r}", ctx)
        name, command, rest = ctx.command.resolve_command(ctx, rest)
        assert command is not None
        ctx = command.context_class(command, parent=ctx, info_name=name)
    click.echo(ctx.get_help(), file=session.host.stdout)


def show_options(session: Session) -> None:
    """Print the options that every command takes, and the exit statuses."""
    root = click.get_current_context().find_root()
    assert isinstance(root.command, RootGroup)
    formatter = root.make_formatter()
    root.command.format_globals(root, formatter)
    click.echo(formatter.getvalue().strip("\n"), file=session.host.stdout)
