"""The bodies of `version`, `help`, `options` and `completion`.

The sections of the first screen are in ``bkctl.cli.command_names``.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

import click

from bkclient.admin.cluster_operations import list_bookies
from bkclient.metadata.stored_values import BookieState
from bkctl.bookies import load_rates
from bkctl.bookies.http.addresses import admin_token, published
from bkctl.bookies.http.admin_client import AdminClient, HttpAddress
from bkctl.cli.completion.scripts import SCRIPTS
from bkctl.cli.root import RootGroup
from bkctl.errors import ConflictError, NothingFoundError
from bkctl.output.views import field, shown
from bkctl.session.session import Session
from bookied.process.own_version import RELEASE, own_version
from wire.errors import BookKeeperError

if TYPE_CHECKING:
    from bkclient.client import Client
    from wire.ids import BookieId


def show_version(session: Session, *, every: bool) -> None:
    """Print the version of this tool, or of ``every`` member of the cluster.

    Raises:
        MetadataStoreError: the list of members cannot be read.
    """
    if not every:
        session.emit(own())
        return

    with session.messages.waiting("waiting for the bookies' answers"):
        members = list(everybody(session))  # The column widths need all rows.
    session.emit_all(members, MemberVersion)


def print_script(session: Session, *, shell: str) -> None:
    """Print the completion script for a shell."""
    session.emit(Script(shell, SCRIPTS[shell]))


def show_help(session: Session, *, words: Sequence[str]) -> None:
    """Print the help of the command that ``words`` name.

    Raises:
        UsageError: the command does not exist.
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
    """The version of this tool."""

    program: str = field("Name of the program.", default="bkctl")
    version: str = field("Version of the program.")
    python: str = field("The version of Python.")
    release: str = field("BookKeeper release whose protocol and formats the program speaks.")
    """The BookKeeper release whose protocol, files and metadata the program uses."""


@shown("members", kw_only=True)
class MemberVersion:
    """One member's version; ``why`` is the reason if the version is unknown."""

    member: str = field("bkctl, metadata, or a bookie.")
    kind: str = field("tool, layout, bookied, Java bookie or bookie.")
    state: str = field("ok, writable, read-only or down.")
    version: str | None = field("Version of the bookie.", default=None)
    why: str = field(
        "The reason, if the version is not known.", of=lambda v: v.why or None, rank=1, default=""
    )


def own() -> OwnVersion:
    """Return the version of this tool."""
    python = ".".join(map(str, sys.version_info[:3]))
    return OwnVersion(version=own_version(), python=python, release=RELEASE)


@shown("scripts", sentence=lambda v: v.text.rstrip("\n"))
class Script:
    """The completion script for a shell."""

    shell: str = field("The shell of the script.")
    text: str = field("The script.", name="script")


ASK_S: Final = 5.0
"""Seconds to wait for one bookie."""

_INFO: Final = re.compile(r'^bookied_info\{.*?version="([^"]*)"', re.MULTILINE)


def everybody(session: Session) -> Iterator[MemberVersion]:
    """Yield this tool, the metadata's layout, and every bookie.

    Raises:
        MetadataStoreError: the metadata service cannot be read.
    """
    bookies = session.call(_bookies)
    yield MemberVersion(member="bkctl", kind="tool", state="ok", version=own_version())
    layout = session.call(lambda client: client.store.layout()).name
    yield MemberVersion(member="metadata", kind="layout", state="ok", version=layout)
    timeout_s = min(ASK_S, session.answers_within_s)
    token = admin_token(session)
    late = f"no answer within {timeout_s:.3g} s"
    with session.waiting_for_bookies():
        found = load_rates.run_in_threads(
            lambda one: _asked(*one, token=token, timeout_s=timeout_s),
            bookies,
            within_s=timeout_s,
            late=None,
        )
    for (bookie_id, state, _), answer in zip(bookies, found, strict=True):
        yield answer or MemberVersion(member=bookie_id, kind="bookie", state=state, why=late)


async def _bookies(client: Client) -> list[tuple[BookieId, str, HttpAddress | str]]:
    """Return every bookie with its state, and its HTTP address or the reason why none is known."""
    found: list[tuple[BookieId, str, HttpAddress | str]] = []
    for one in await list_bookies(client):
        where: HttpAddress | str = "it is down"
        if one.state is not BookieState.DOWN:
            try:
                where = await published(client, one.bookie_id)
            except (ConflictError, NothingFoundError) as error:
                where = str(error)
        found.append((one.bookie_id, one.state.value, where))
    return found


def _asked(
    bookie_id: BookieId, state: str, where: HttpAddress | str, *, token: str, timeout_s: float
) -> MemberVersion:
    if isinstance(where, str):
        return MemberVersion(member=bookie_id, kind="bookie", state=state, why=where)
    admin = AdminClient(*where, token=token, timeout_s=timeout_s)
    return of_bookie(admin, bookie_id, state)


def of_bookie(admin: AdminClient, bookie_id: BookieId, state: str) -> MemberVersion:
    """Return the version that one bookie reports."""
    try:
        if not admin.speaks_v2:
            why = "Java's bookies do not report it"
            return MemberVersion(member=bookie_id, kind="Java bookie", state=state, why=why)
        found = _INFO.search(admin.ask("GET", "/metrics").body)
    except BookKeeperError as error:
        return MemberVersion(member=bookie_id, kind="bookie", state=state, why=str(error))
    version = found[1] if found else None
    why = "" if version else "its metrics do not report it"
    return MemberVersion(member=bookie_id, kind="bookied", state=state, version=version, why=why)
