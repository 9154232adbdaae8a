"""``bkctl config`` and ``bkctl profile``: values of settings files, and clusters by name."""

from __future__ import annotations

from functools import partial
from typing import Final

import click

from bkctl.cli.command import SubGroup
from bkctl.cli.declarations import argument, flag, option
from bkctl.exit_status import Effect, ExitStatus, Facility
from bkctl.global_options import OUTPUTS, PROFILE

config = SubGroup(
    name="config",
    help="Settings files: check, explain, compare, show.",
    aliases={
        "explain": "config show --keys",
        "list": "config show",
        "set": "bookie config-set",
    },
)


config.command(
    "check",
    body="bkctl.commands.settings.config_files:check",
    help="""Check a settings file; without FILE, that of -c or of this host.

    Status 10 means that bookied would refuse the file, 9 that it would warn, as with `bookied
    --check-config`. The command also opens the TLS files that the settings name.
    """,
    params=(
        argument("path", metavar="[FILE]", type=click.Path(), required=False),
        option(
            "--for",
            "side",
            type=click.Choice(["bookie", "client"]),
            default=None,
            help="The program that reads the file.  [default: by the keys in the file]",
        ),
        flag("--strict", help="An unknown key is an error."),
    ),
    effect=Effect.READ,
    examples="""
        bkctl config check bk_server.conf  # what bookied would say about it
        bkctl config check common.conf --for client  # what a client would say about it
        bkctl config check bk_server.conf --strict -o json  # unknown keys are errors
    """,
    exits=(ExitStatus.NOT_FOUND, ExitStatus.WARNINGS, ExitStatus.PROBLEMS),
    replaces="nothing in Java's tools: they ignore unknown keys",
)

config.command(
    "show",
    body="bkctl.commands.settings.config_files:show",
    help="""Show the settings that a start would use, or explain KEYs. Secrets are masked.

    The command asks no bookie: `bkctl bookie config` shows the settings of a running bookie.

    The first source that sets a key wins: option, profile of --profile, environment, profile of
    BKCTL_PROFILE or default profile, settings file, default.

    KEY is a name (also one of Java's), a part of a name, or a pattern with `*`. The command then
    says what each key does, its value in effect, its default and the allowed values. bookied
    refuses keys that it cannot ignore safely.
    """,
    params=(
        argument("keys", metavar="[KEY]...", nargs=-1),
        flag("--keys", "all_keys", help="Explain the KEYs, or all keys."),
        option(
            "--use",
            type=click.Choice(["honoured", "no effect", "warned", "refused"]),
            help="Explain only keys that are used this way.",
        ),
        flag("--origin", help="Show the source of each value."),
        flag("--all", "every", help="Show values equal to the default, too."),
        option(
            "--for",
            "side",
            type=click.Choice(["client", "bookie"]),
            default=None,
            help="The program that uses the settings.  [default: by the file of -c, else client]",
        ),
    ),
    effect=Effect.READ,
    examples="""
        bkctl config show  # what this command line would set, in the form of a file
        bkctl config show gcWaitTime 'journal*'  # what these keys do, and what is allowed
        bkctl config show --origin  # with the flag, variable, profile or line of each value
        bkctl config show --all --for bookie -c bk_server.conf  # every setting of a bookie
    """,
    exits=(ExitStatus.NOT_FOUND,),
)

config.command(
    "diff",
    body="bkctl.commands.settings.config_files:diff",
    help="""Compare the values of two settings files, or of one with the defaults.

    Different spellings of the same value (yes and true, another order, a default written out) do
    not count as a difference.
    """,
    params=(
        argument("first", metavar="FILE", type=click.Path()),
        argument("second", metavar="[FILE]", type=click.Path(), required=False),
    ),
    effect=Effect.READ,
    examples="""
        bkctl config diff bk1.conf bk2.conf  # keys that differ, whatever their order
        bkctl config diff bk_server.conf  # values that are not the default
    """,
    exits=(ExitStatus.NOT_FOUND,),
)


FIELDS: Final = (
    "service-uri", "conf", "output", "production", "admin-token-file",
    "ca-file", "cert-file", "key-file", "key-password-file",
)  # fmt: skip
"""The fields that can be removed from a profile, besides keys of the settings file."""

profile = SubGroup(
    name="profile",
    help="""Profiles: clusters by name.

    Profiles are in one file, $BKCTL_CONFIG or ~/.config/bkctl/config.toml. `--profile` selects a
    profile, and only -u, -X and -o override it. Without `--profile`, the profile of $BKCTL_PROFILE
    or the default profile applies; then $BKCTL_SERVICE_URI, $BKCTL_CONF and $BKCTL_OUTPUT override
    it. Every profile overrides the settings file.
    """,
)


_VALUES: Final = (
    option("--default-output", type=click.Choice(OUTPUTS), help="Format of results without -o."),
    option(
        "--production/--no-production",
        default=None,
        help="Mark as production: the shell's prompt is red.",
    ),
    option(
        "--admin-token-file", metavar="FILE", help="File with the token for the bookies' HTTP API."
    ),
    option("--ca-file", metavar="FILE", help="PEM file of the authorities to trust in TLS."),
    option("--cert-file", metavar="FILE", help="PEM file with the client's certificate for TLS."),
    option("--key-file", metavar="FILE", help="PEM file with the client's key for TLS."),
    option("--key-password-file", metavar="FILE", help="File with the password of --key-file."),
    flag("--use", help="Make this profile the default."),
)
"""The options for a profile's values. The global options name the cluster."""

_command = partial(
    profile.command,
    replaces="nothing in Java's tools: there each cluster is a conf directory of its own",
    without=(Facility.PROFILE,),
)
"""A decorator that declares a command of the group."""

_command(
    "list",
    body="bkctl.commands.settings.profile_edits:list_profiles",
    help="List profiles.",
    effect=Effect.READ,
    examples="""
        bkctl profile list  # every profile, and which one is the default
        bkctl profile list -o id  # their names alone
    """,
)

_command(
    "show",
    body="bkctl.commands.settings.profile_edits:show",
    help="Show a profile; without NAME the profile that commands use now.",
    params=(argument("name", type=PROFILE, required=False),),
    effect=Effect.READ,
    examples="""
        bkctl profile show  # the profile that commands use now
        bkctl profile show prod -o json  # another one
    """,
    exits=(ExitStatus.NOT_FOUND,),
)

_command(
    "create",
    body="bkctl.commands.settings.profile_edits:create",
    help="Save the cluster of -u or -c, and the keys of -X, as profile NAME.",
    params=(argument("name", type=PROFILE), *_VALUES),
    effect=Effect.REVERSIBLE,
    examples="""
        bkctl profile create staging -u zk+hierarchical://zk1:2181/ledgers --use  # by its URI
        bkctl profile create prod -c /etc/bookkeeper/bk_server.conf --production  # by a file
        bkctl profile create lab -u sqlite:///tmp/lab.db -X readTimeout=10  # with a client key
    """,
    exits=(ExitStatus.FAILED, ExitStatus.CONFLICT),
)

_command(
    "use",
    body="bkctl.commands.settings.profile_edits:use",
    help="Make NAME the default profile, used if neither -u nor -c names a cluster.",
    params=(argument("name", type=PROFILE),),
    effect=Effect.REVERSIBLE,
    examples="""
        bkctl profile use staging  # for commands that name no cluster
        bkctl profile use none  # remove the default: commands use the settings file again
    """,
    exits=(ExitStatus.FAILED, ExitStatus.NOT_FOUND),
)

_command(
    "edit",
    body="bkctl.commands.settings.profile_edits:edit",
    help="Change a profile with the options of `create`. Without options, open the file in "
    "$EDITOR.",
    params=(
        argument("name", type=PROFILE, required=False),
        option(
            "--unset",
            multiple=True,
            metavar="FIELD",
            help=f"Remove one of {', '.join(FIELDS)}, or a key of the settings file.",
        ),
        *_VALUES,
    ),
    effect=Effect.REVERSIBLE,
    examples="""
        bkctl profile edit prod -u zk+hierarchical://zk9:2181/ledgers  # change the URI
        bkctl profile edit prod --unset production --unset readTimeout  # remove keys
        bkctl profile edit  # the file, in $EDITOR
    """,
    exits=(ExitStatus.FAILED, ExitStatus.NOT_FOUND, ExitStatus.REFUSED),
)

_command(
    "delete",
    body="bkctl.commands.settings.profile_edits:delete",
    help="Delete a profile. The cluster itself is not touched.",
    params=(argument("name", type=PROFILE),),
    effect=Effect.REVERSIBLE,
    examples="""
        bkctl profile delete lab  # shows it, and asks
        bkctl profile delete lab --yes  # does not ask
    """,
    exits=(ExitStatus.FAILED, ExitStatus.NOT_FOUND, ExitStatus.REFUSED),
)

_command(
    "import",
    body="bkctl.commands.settings.profile_edits:take_over",
    help="Import profiles from a TOML file, or one from a settings file of Java.",
    params=(
        argument("path", metavar="FILE", type=click.Path()),
        option(
            "--name",
            type=PROFILE,
            help="The profile to import from a TOML file, or the new profile of a settings file.",
        ),
        option("--as", "new_name", metavar="NAME", help="A new name for the imported profile."),
        flag("--replace", help="Replace profiles of the same name."),
    ),
    effect=Effect.REVERSIBLE,
    examples="""
        bkctl profile import team.toml  # all profiles of another file
        bkctl profile import /opt/bookkeeper/conf/bk_server.conf --name prod
          # the cluster and client keys of a settings file of Java
    """,
    exits=(ExitStatus.FAILED, ExitStatus.NOT_FOUND, ExitStatus.CONFLICT),
)
