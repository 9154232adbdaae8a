"""The root of the command tree, and the way from a command line to an exit status.

``bkctl --help`` imports this module, click and nothing heavy: groups are imported when a command of
theirs runs. The help line of each group stands here, and a test compares it with the group's own.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, NoReturn

import click

from bkctl.cli.command import Group
from bkctl.cli.completion.scripts import VARIABLE
from bkctl.exit_status import MEANING, ExitStatus
from bkctl.options import global_options, options_of

if TYPE_CHECKING:
    from bkctl.session.session import Host, Session

PROGRAM: Final = "bkctl"

HELP_WIDTH_MAX: Final = 100
HELP_WIDTH_MIN: Final = 50
_WIDTH_DEFAULT: Final = 80

GC_THRESHOLD: Final = 20_000
"""Objects made since the last look for garbage before there is another one."""

COMMANDS: Final = {
    "ledger": (
        "bkctl.commands.ledger.commands:ledger",
        "Ledgers: create, add, read, close, recover, delete.",
    ),
    "bookie": ("bkctl.commands.bookie.commands:bookie", "Bookies: list, inspect, change, remove."),
    "cluster": (
        "bkctl.commands.cluster.commands:cluster",
        "The cluster as a whole: make one, look at it, take it away.",
    ),
    "autorecovery": (
        "bkctl.commands.autorecovery.commands:autorecovery",
        "Autorecovery: re-replicate ledgers after a bookie is lost.",
    ),
    "cookie": (
        "bkctl.commands.cookie.commands:cookie",
        "Cookies: what ties a bookie's id to its directories.",
    ),
    "doctor": (
        "bkctl.commands.doctor.commands:doctor",
        "Report what is wrong with a cluster, the worst first.",
    ),
    "debug": (
        "bkctl.commands.doctor.debug_commands:debug",
        "Collect what is needed to find a fault.",
    ),
    "disk": (
        "bkctl.commands.disk.commands:disk",
        "A bookie's directories: look into them, check them, repair them.",
    ),
    "top": (
        "bkctl.commands.load.commands:top",
        "Watch the load of the cluster and of each bookie.",
    ),
    "config": (
        "bkctl.commands.settings.config:config",
        "Settings files: check, explain, compare, and what is in effect.",
    ),
    "profile": ("bkctl.commands.settings.profile:profile", "Profiles: clusters by name."),
    "explain": ("bkctl.commands.about.explain:explain", "Explain an error, and what to do."),
    "version": (
        "bkctl.commands.about.version_commands:version",
        "Show the version of this tool, and of all bookies.",
    ),
    "log": ("bkctl.commands.log.commands:log", "Logs: endless sequences made of ledgers."),
    "topic": (
        "bkctl.commands.topic.commands:topic",
        "Pulsar topics, read without a broker.",
    ),
    "bench": (
        "bkctl.commands.load.bench_commands:bench",
        "How fast a cluster or a disk takes entries and gives them back.",
    ),
    "export": ("bkctl.commands.export.commands:export", "Export ledgers to Parquet."),
    "shell": (
        "bkctl.commands.about.shell:shell",
        "Run commands from a prompt or a script, on one connection.",
    ),
    "compat": (
        "bkctl.commands.about.compat:compat",
        "Run a command of Java's tools, by its name and options.",
    ),
    "local": ("bkctl.commands.local.commands:local", "Run a cluster of N bookies on this machine."),
    "standalone": ("bkctl.commands.local.commands:standalone", "Short for `local 1 --all`."),
    "demo": (
        "bkctl.commands.about.demo:demo",
        "Run a demo: write, crash, recover, read, export.",
    ),
    "completion": (
        "bkctl.commands.about.completion:completion",
        "Print the completion script for bash, zsh or fish.",
    ),
    "metaformat": (
        "bkctl.commands.cluster.commands:metaformat",
        "Short for `cluster format`, with Java's options.",
    ),
    "upgrade": ("bkctl.commands.disk.repair.upgrade_commands:upgrade", "Short for `disk upgrade`."),
    "bookieformat": (
        "bkctl.commands.disk.repair.format_commands:bookieformat",
        "Short for `disk format`, with Java's options.",
    ),
    "fence": ("bkctl.commands.ledger.commands:fence", "Short for `ledger fence`."),
    "recover": (
        "bkctl.commands.bookie.retire.commands:recover_either",
        "Short for `bookie recover`, and for `ledger recover` with a number.",
    ),
    "decommission": (
        "bkctl.commands.bookie.retire.commands:decommission",
        "Short for `bookie decommission`.",
    ),
}


class RootGroup(Group):
    """The root: turns whatever ends a command into one line and an exit status."""

    def main(  # type: ignore[override] # never returns: it is always a program's end
        self,
        args: Sequence[str] | None = None,
        obj: Host | None = None,
        **_: Any,
    ) -> NoReturn:
        from bookied.process.standard_streams import open_closed_streams, outlive_stderr

        if None in {sys.stdin, sys.stdout, sys.stderr}:
            open_closed_streams()
        outlive_stderr()
        if VARIABLE in os.environ:
            from bkctl.cli.completion.answer import answer

            sys.exit(answer(self, os.environ))
        # What is imported stays: looking through it for garbage is a tenth of a short command.
        gc.set_threshold(GC_THRESHOLD)
        status = self.run(sys.argv[1:] if args is None else args, obj)
        sys.exit(_flushed(status, lasting=obj is not None))

    def run(self, args: Sequence[str], host: Host | None = None) -> int:
        """Run one command line; return its exit status. Prints errors, raises none."""
        meta: dict[str, Any] = {}
        try:
            with self.make_context(PROGRAM, list(args), obj=host) as ctx:
                meta = ctx.meta
                options_of(ctx).args = tuple(args)
                self.invoke(ctx)
        except click.exceptions.Exit as end:
            return end.exit_code
        except BaseException as error:  # noqa: BLE001 -- the one place where all of them end
            return _report(error, meta.get("bkctl.session"), args)
        return ExitStatus.DONE

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        # Else click finds it out with shutil, whose import brings three compression libraries.
        return super().make_context(
            info_name, args, parent, terminal_width=_terminal_width(), **extra
        )

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self.format_commands(ctx, formatter)
        click.Command.format_options(self, ctx, formatter)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Exit status"):
            formatter.write_dl([(str(int(status)), text) for status, text in MEANING.items()])
        super().format_epilog(ctx, formatter)


def _report(error: BaseException, session: Session | None, args: Sequence[str]) -> int:
    """Print what ended the command; return the exit status."""
    if isinstance(error, BrokenPipeError):
        from bkctl.errors import PagerLeftError

        if not isinstance(error, PagerLeftError):
            _drop_stdout()
        return ExitStatus.DONE
    from bkctl.cli.report import report

    return report(error, session, args)


def _flushed(status: int, *, lasting: bool) -> int:
    """Write out what is buffered; a reader that has gone away is no error, a full disk is.

    ``lasting``: there are commands to come, which need stdout as it is.
    """
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _drop_stdout()
    except KeyboardInterrupt:  # The reader does not read.
        if not lasting:
            _drop_stdout()
        return ExitStatus.INTERRUPTED
    except OSError as error:
        _drop_stdout()
        if status != ExitStatus.FAILED:  # Else it has been told.
            click.echo(f"{PROGRAM}: stdout: {error.strerror}", err=True)
        return status or ExitStatus.FAILED
    return status


def _drop_stdout() -> None:
    """Let the interpreter's last flush of stdout go nowhere."""
    try:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)
    except (OSError, ValueError):
        return  # A stdout that is no file (in a test) cannot fail later either.


def _terminal_width() -> int:
    """Return the width that help texts may have."""
    columns = os.environ.get("COLUMNS", "")
    if columns.isdigit() and int(columns):
        width = int(columns)
    else:
        try:
            width = os.get_terminal_size().columns
        except OSError:
            width = _WIDTH_DEFAULT
    return max(min(width, HELP_WIDTH_MAX) - 2, HELP_WIDTH_MIN)


def _show_version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:  # noqa: FBT001
    if not wanted or ctx.resilient_parsing:
        return
    from bkctl.cli.own_version import RELEASE, own_version

    python = ".".join(map(str, sys.version_info[:3]))
    click.echo(
        f"bkctl {own_version()}, the Python toolkit for Apache BookKeeper (not the Java bkctl)\n"
        f"Python {python}; protocol, files and metadata of BookKeeper {RELEASE}"
    )
    ctx.exit()


cli = RootGroup(
    name=PROGRAM,
    help="""Ledgers, bookies and clusters of Apache BookKeeper, from one command.

    This is the Python bkctl; Java ships another program of that name.

    \b
    bkctl demo                     the whole way once, on this machine
    bkctl local 3                  a cluster to play with
    bkctl ledger write FILE        a file into a new ledger; prints its id
    bkctl ledger read 42           and out again
    bkctl export 42 --to DIR       as Parquet
    """,
    lazy=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"]},
    no_args_is_help=True,
    params=[
        *global_options(root=True),
        click.Option(
            ["--version"],
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=_show_version,
            help="Show which bkctl this is.",
        ),
    ],
)

main: Callable[[], NoReturn] = cli.main


if __name__ == "__main__":
    main()
