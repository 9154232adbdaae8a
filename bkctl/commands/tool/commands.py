"""The ``bkctl`` commands without a cluster of their own: shell, Java's commands, help, versions."""

from __future__ import annotations

import copy
from typing import Any

import click

from bkctl.cli.command import Command
from bkctl.cli.completion.scripts import SCRIPTS
from bkctl.cli.declarations import argument, flag, option
from bkctl.exit_status import Effect, ExitStatus, Facility
from bkctl.global_options import is_global


class ShellCommand(Command):
    """The command `shell`: it has no session, and ``-c`` is a script, as for sh."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for n, parameter in enumerate(self.params):
            if is_global(parameter) and "-c" in parameter.opts:
                # Other commands keep the shared parameter.
                own = self.params[n] = copy.copy(parameter)
                own.opts = [name for name in parameter.opts if name != "-c"]

    def invoke(self, ctx: click.Context) -> Any:
        return self.load()(ctx, **ctx.params)


class CompatCommand(Command):
    """The command `compat`: it translates a command line, prints it, and runs it."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        from bkctl.commands.tool.compat import take_globals

        return super().parse_args(ctx, take_globals(ctx, args))

    def invoke(self, ctx: click.Context) -> Any:
        return self.load()(ctx, **ctx.params)

    @property
    def effect_sentence(self) -> str:
        return "The effect is that of the bkctl command that compat runs."

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        from bkctl.commands.tool.compat import names_by_group

        with formatter.section("Java's commands"):
            rows = names_by_group().items()
            formatter.write_dl([(group, ", ".join(names)) for group, names in rows])
        super().format_options(ctx, formatter)


completion = Command(
    "completion",
    body="bkctl.commands.tool.help_and_version:print_script",
    short_help="Print the completion script for bash, zsh or fish.",
    help="""Print the script that completes commands, options, choices and existing ids in a shell.

    Packages install the script where shells find it. For one session of bash or zsh run `eval
    "$(bkctl completion bash)"`.

    Each Tab asks the cluster for existing ids, and waits for them at most two seconds.
    """,
    params=(argument("shell", type=click.Choice(tuple(SCRIPTS))),),
    effect=Effect.READ,
    without=(Facility.WATCH,),
    examples="""
        bkctl completion bash > ~/.local/share/bash-completion/completions/bkctl
          # for the user, where bash-completion is installed
        bkctl completion zsh > ~/.zfunc/_bkctl  # with ~/.zfunc in $fpath, before compinit
        bkctl completion fish | source  # in ~/.config/fish/config.fish
    """,
)

explain = Command(
    "explain",
    body="bkctl.commands.tool.explain:explain",
    short_help="Explain an error, and what to do; or a term.",
    help="""Explain an error: its meaning, its exit status, and what to do.

    The name of an error is in brackets at the end of its line, and `name` in JSON. Names do not
    change from release to release. `BK-` may be left out.

    The command also explains exit statuses, such as `explain 6`, and these terms: ack quorum (qa),
    auditor, balance, bookie, closed, cluster, cookie, cursor, custom metadata, deleted, ensemble
    (e), entry, entry log, fence, fragment, headroom, input/output error (eio), instance id,
    journal, last add confirmed (lac), ledger, log, mark, metrics, orphan, profile, quarantine,
    rack, read-only, sealed, write quorum (qw). For a setting, or a part of its name, it prints what
    `config show` prints.
    """,
    params=(argument("names", metavar="[NAME]...", nargs=-1),),
    effect=Effect.READ,
    examples="""
        bkctl explain BK-LEDGER-FENCED  # causes, exit status, and what to try
        bkctl explain BKLedgerFencedException  # by the class that a Java log names
        bkctl explain lac  # a term
        bkctl explain  # every name
    """,
    exits=(ExitStatus.NOT_FOUND,),
    without=(Facility.WATCH, Facility.PROFILE),
)

shell = ShellCommand(
    "shell",
    body="bkctl.commands.tool.shell:run",
    short_help="Run commands from a prompt or a script, on one connection.",
    help="""Run commands without `bkctl` in front of them, on one connection.

    On a terminal the shell has a prompt, a history, and completion of commands, options and
    existing ids. Options given before or after `shell` apply to each command. A script (FILE, stdin
    or -c) ends at the first command that fails, with the status of that command.
    """,
    params=(
        argument("path", metavar="[FILE | -]", required=False),
        option("-c", "-e", "--command", "text", help="Run these commands, and end."),
        flag("--keep-going", help="Continue a script after a failed command."),
        option(
            "--keys",
            type=click.Choice(["emacs", "vi"]),
            envvar="BKCTL_SHELL_KEYS",
            show_envvar=True,
            help="Key bindings of the prompt.  [default: emacs]",
        ),
        option("--bar/--no-bar", default=None, help="Show a line with the cluster's state."),
    ),
    effect=Effect.READ,
    without=(Facility.WATCH,),
    examples="""
        bkctl shell  # a prompt; Tab completes, `help` lists the commands
        bkctl shell -c 'use ledger 42; ledger show; ledger read 0-9'  # a few commands
        bkctl shell nightly.bk --keep-going  # a script, one command a line
    """,
    exits=tuple(ExitStatus),
    replaces="nothing in Java's tools: `bookkeeper shell` starts anew for each command",
)

version = Command(
    "version",
    body="bkctl.commands.tool.help_and_version:show_version",
    prints=("OwnVersion", "MemberVersion"),
    short_help="Show the version of this tool; with --all, of each bookie.",
    help="""Show versions: the tool's, Python's, the protocol's; with --all each bookie's.

    Bookies of this project report their version over HTTP. A Java bookie reports no version, and is
    shown as Java.
    """,
    params=(flag("--all", "every", help="Also ask each bookie, over HTTP."),),
    effect=Effect.READ,
    examples="""
        bkctl version  # of this tool
        bkctl version --all  # and of each bookie that reports it
        bkctl version --all --filter version=none  # bookies that report no version
    """,
    exits=(ExitStatus.UNREACHABLE, ExitStatus.TIME_LIMIT),
    replaces="bookkeeper shell's missing --version; bookkeeper-server prints it at its start",
)


compat = CompatCommand(
    "compat",
    body="bkctl.commands.tool.compat:run",
    help="""Run a command of Java's tools, by its name and options.

    The tools are Java's shell and Java's bkctl. The command prints the matching bkctl command on
    stderr and runs that command. Exit status, output and questions are those of the bkctl command.
    Java's -nonInteractive is --no-input, and its -force is --yes, which overrides no safety check.
    """,
    params=(
        argument(
            "words",
            nargs=-1,
            required=True,
            type=click.UNPROCESSED,
            metavar="JAVA_COMMAND [JAVA_OPTIONS]",
        ),
    ),
    effect=Effect.LOSES_DATA,
    examples="""
        bkctl compat readledger -l 3 -fe 0 -le 9  # runs `bkctl ledger read 3 --first 0 ...`
        bkctl compat -conf bk_server.conf listbookies -rw  # with the options of Java's shell
        bkctl compat bookies list -rw  # as Java's bkctl has it
        bkctl -o json compat listledgers  # options of bkctl go before the Java command
    """,
    exits=tuple(ExitStatus),
    replaces="bookkeeper shell COMMAND; bkctl (Java's) GROUP COMMAND",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)

help_ = Command(
    "help",
    body="bkctl.commands.tool.help_and_version:show_help",
    short_help="Show the help of a command.",
    help="Show the help of COMMAND, as `bkctl COMMAND --help` does, or the list of commands.",
    params=(argument("words", metavar="[COMMAND]...", nargs=-1),),
    effect=Effect.READ,
    without=(Facility.WATCH, Facility.PROFILE),
    examples="""
        bkctl help ledger  # the commands for ledgers
        bkctl help ledger read  # its examples, options and exit statuses
        bkctl help readledger  # the line to use instead of a command of Java's shell
    """,
    replaces="bookkeeper shell help COMMAND",
)

options = Command(
    "options",
    body="bkctl.commands.tool.help_and_version:show_options",
    help="""Show the options that every command takes.

    You may write these options before the command's name or after it. Each option names its
    environment variable; an option on the command line wins. `bkctl config show --help` has the
    order of all sources of settings. The exit statuses are at the end.
    """,
    effect=Effect.READ,
    without=(Facility.WATCH, Facility.PROFILE),
    examples="""
        bkctl options  # all options
        bkctl options | less  # page by page
    """,
    replaces="nothing in Java's tools; bookkeeper shell without a command",
)
