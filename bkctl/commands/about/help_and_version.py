"""What ``bkctl`` says of itself: version, help, and the script with which a shell completes."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from bkctl.cli.completion.scripts import SCRIPTS
from bkctl.cli.root import RootGroup
from bkctl.output.views import Kind, field, shown
from bkctl.session.session import Session
from bookied.process.own_version import RELEASE, own_version


@shown(
    "versions",
    kw_only=True,
    id="version",
    sentence=lambda v: (
        f"{v.program} {v.version} (Python {v.python}; protocol, files and "
        f"metadata of BookKeeper {v.release})"
    ),
)
class OwnVersion:
    """What this tool is."""

    program: str = field("Which program.", default="bkctl")
    version: str = field("Its version.")
    python: str = field("The version of Python.")
    release: str = field("The BookKeeper release it speaks.")
    """The BookKeeper release whose protocol, files and metadata it speaks."""


@shown("members", kw_only=True)
class MemberVersion:
    """One member's version; ``why`` says why it is not known."""

    member: str = field("bkctl, metadata, or a bookie.")
    kind: str = field("tool, layout, bookied, Java bookie or bookie.")
    state: str = field("ok, writable, read-only or down.", kind=Kind.STATE)
    version: str | None = field("Its version.", default=None)
    why: str = field("Why that is not known.", of=lambda v: v.why or None, rank=1, default="")


def own() -> OwnVersion:
    """Return the version of this tool."""
    python = ".".join(map(str, sys.version_info[:3]))
    return OwnVersion(version=own_version(), python=python, release=RELEASE)


@shown("scripts", sentence=lambda v: v.text.rstrip("\n"))
class Script:
    """What a shell is told so that it completes."""

    shell: str = field("Whose script it is.")
    text: str = field("What the shell is to read.", name="script")


def show_version(session: Session, *, every: bool) -> None:
    """Print the version of this tool, or of ``every`` member of the cluster.

    Raises:
        MetadataStoreError: the cluster cannot be asked for its members.
    """
    if not every:
        session.emit(own())
        return
    from bkctl.commands.about.version import everybody

    with session.messages.waiting("waiting for the bookies' answers"):
        members = list(everybody(session))  # All, so that the columns fit all.
    session.emit_all(members, MemberVersion)


def print_script(session: Session, *, shell: str) -> None:
    """Print the script that makes a shell complete."""
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
