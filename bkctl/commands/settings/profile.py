"""``bkctl profile``: clusters by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from bkctl.cli.command import SubGroup
from bkctl.exit_status import Effect, ExitStatus
from bkctl.options import OUTPUTS, PROFILE

if TYPE_CHECKING:
    from bkctl.session.session import Session

_F = TypeVar("_F", bound=Callable[..., Any])

_NO_TWIN: Final = "nothing in Java's tools: there each cluster is a conf directory of its own"

FIELDS: Final = (
    "service-uri", "conf", "output", "production", "admin-token-file",
    "ca-file", "cert-file", "key-file", "key-password-file",
)  # fmt: skip
"""What can be taken out of a profile, besides keys of the settings file."""

profile = SubGroup(
    name="profile",
    short_help="Profiles: clusters by name.",
    help="""Profiles: clusters by name.

    They are in one file, $BKCTL_CONFIG or ~/.config/bkctl/config.toml. What a flag or the
    environment says comes before the profile, what the settings file says after it.
    """,
)


def _values(function: _F) -> _F:
    """Add what a profile can say. The cluster itself is said by the options of every command."""
    options: tuple[Callable[[Any], Any], ...] = (
        click.option(
            "--default-output", type=click.Choice(OUTPUTS), help="The form of results without -o."
        ),
        click.option(
            "--production/--no-production", default=None, help="Mark it: the shell's prompt is red."
        ),
        click.option(
            "--admin-token-file",
            metavar="FILE",
            help="File with the token for the bookies' HTTP API.",
        ),
        click.option(
            "--ca-file", metavar="FILE", help="PEM file of the authorities to trust in TLS."
        ),
        click.option("--cert-file", metavar="FILE", help="PEM file with our certificate for TLS."),
        click.option("--key-file", metavar="FILE", help="PEM file with our key for TLS."),
        click.option("--key-password-file", metavar="FILE", help="File with that key's password."),
        click.option("--use", is_flag=True, help="Make it the default from now on."),
        click.pass_obj,
    )
    for option in reversed(options):
        function = option(function)
    return function


@profile.command(
    "list",
    effect=Effect.READ,
    takes_profile=False,
    examples=(
        ("bkctl profile list", "every profile, and which one is the default"),
        ("bkctl profile list -o id", "their names alone"),
    ),
    replaces=_NO_TWIN,
)
@click.pass_obj
def list_(session: Session) -> None:
    """List profiles."""
    from bkctl.commands.settings import profile_work

    session.emit_all(profile_work.profiles(session), profile_work.ProfileRow)


@profile.command(
    "show",
    effect=Effect.READ,
    takes_profile=False,
    examples=(
        ("bkctl profile show", "the one that commands use now"),
        ("bkctl profile show prod -o json", "another one"),
    ),
    exits=(ExitStatus.NOT_FOUND,),
    replaces=_NO_TWIN,
)
@click.argument("name", type=PROFILE, required=False)
@click.pass_obj
def show(session: Session, *, name: str | None) -> None:
    """Show a profile; without NAME the one that commands use now."""
    from bkctl.commands.settings import profile_work

    session.emit(profile_work.profile(session, name))


@profile.command(
    "create",
    effect=Effect.REVERSIBLE,
    takes_profile=False,
    examples=(
        ("bkctl profile create staging -u zk+hierarchical://zk1:2181/ledgers --use", "by its URI"),
        ("bkctl profile create prod -c /etc/bookkeeper/bk_server.conf --production", "by a file"),
        ("bkctl profile create lab -u sqlite:///tmp/lab.db -X readTimeout=10", "with a client key"),
    ),
    exits=(ExitStatus.FAILED, ExitStatus.CONFLICT),
    replaces=_NO_TWIN,
)
@click.argument("name", type=PROFILE)
@_values
def create(session: Session, name: str, **values: Any) -> None:
    """Save the cluster of -u or -c, and the keys of -X, as profile NAME."""
    from bkctl.commands.settings import profile_work

    profile_work.create(session, name, values)


@profile.command(
    "use",
    effect=Effect.REVERSIBLE,
    takes_profile=False,
    examples=(
        ("bkctl profile use staging", "for commands that name no cluster"),
        ("bkctl profile use none", "such commands go by the settings file again"),
    ),
    exits=(ExitStatus.FAILED, ExitStatus.NOT_FOUND),
    replaces=_NO_TWIN,
)
@click.argument("name", type=PROFILE)
@click.pass_obj
def use(session: Session, *, name: str) -> None:
    """Make NAME the default profile, used if neither -u nor -c names a cluster."""
    from bkctl.commands.settings import profile_work

    profile_work.use(session, name)


@profile.command(
    "edit",
    effect=Effect.REVERSIBLE,
    takes_profile=False,
    examples=(
        ("bkctl profile edit prod -u zk+hierarchical://zk9:2181/ledgers", "change one thing"),
        ("bkctl profile edit prod --unset production --unset readTimeout", "take things out"),
        ("bkctl profile edit", "the file, in $EDITOR"),
    ),
    exits=(ExitStatus.FAILED, ExitStatus.NOT_FOUND, ExitStatus.REFUSED),
    replaces=_NO_TWIN,
)
@click.argument("name", type=PROFILE, required=False)
@click.option(
    "--unset", multiple=True, metavar="FIELD",
    help=f"Take out one of {', '.join(FIELDS)}, or a key of the settings file.",
)  # fmt: skip
@_values
def edit(session: Session, name: str | None, *, unset: Sequence[str], **values: Any) -> None:
    """Change a profile by options as for `create`; without any, open the file in $EDITOR."""
    from bkctl.commands.settings import profile_work

    profile_work.edit(session, name, values, unset)


@profile.command(
    "delete",
    effect=Effect.REVERSIBLE,
    takes_profile=False,
    examples=(
        ("bkctl profile delete lab", "shows it, and asks"),
        ("bkctl profile delete lab --yes", "does not ask"),
    ),
    exits=(ExitStatus.FAILED, ExitStatus.NOT_FOUND, ExitStatus.REFUSED),
    replaces=_NO_TWIN,
)
@click.argument("name", type=PROFILE)
@click.pass_obj
def delete(session: Session, *, name: str) -> None:
    """Delete a profile. The cluster itself is not touched."""
    from bkctl.commands.settings import profile_work

    profile_work.delete(session, name)


@profile.command(
    "import",
    effect=Effect.REVERSIBLE,
    takes_profile=False,
    examples=(
        ("bkctl profile import team.toml", "all profiles of another such file"),
        ("bkctl profile import /opt/bookkeeper/conf/bk_server.conf --name prod",
         "the cluster and client keys of a settings file of Java"),
    ),
    exits=(ExitStatus.FAILED, ExitStatus.NOT_FOUND, ExitStatus.CONFLICT),
    replaces=_NO_TWIN,
)  # fmt: skip
@click.argument("path", metavar="FILE", type=click.Path())
@click.option(
    "--name",
    type=PROFILE,
    help="Only this one of a TOML file; the new one's name for a settings file.",
)
@click.option("--replace", is_flag=True, help="Take the place of profiles of the same name.")
@click.pass_obj
def import_(session: Session, *, path: str, name: str | None, replace: bool) -> None:
    """Import profiles from a TOML file, or one from a settings file of Java."""
    from bkctl.commands.settings import profile_work

    profile_work.take_over(session, path, name, replace=replace)
