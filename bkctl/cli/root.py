"""The root of the command tree, and the way from a command line to an exit status.

``bkctl --help`` imports this module, click and nothing heavy: groups are imported when a command of
theirs runs. What the help says of each stands in ``names``.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, NoReturn

import click

from bkctl.cli.command import JAVA_LINE, Group, import_path
from bkctl.cli.command_names import ALIASES, COMMANDS, JOINED, SECTIONS
from bkctl.cli.completion.scripts import VARIABLE
from bkctl.exit_status import MEANING, ExitStatus
from bkctl.global_options import PROFILE, global_options, options_of

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from bkctl.environment_and_streams import Host
    from bkctl.session.session import Session

PROGRAM: Final = "bkctl"

HELP_WIDTH_MAX: Final = 100
HELP_WIDTH_MIN: Final = 30
_WIDTH_DEFAULT: Final = 80

LIVE_IDS: Final = "bkctl.commands.tool.completion_process:completions"
"""What Tab asks for ids that exist."""

GC_THRESHOLD: Final = 20_000
"""Objects made since the last look for garbage before there is another one."""


class RootGroup(Group):
    """The root: turns whatever ends a command into one line and an exit status."""

    def main(  # type: ignore[override] # never returns: it is always a program's end
        self, args: Sequence[str] | None = None, obj: Host | None = None, **_: Any
    ) -> NoReturn:
        from bkclient.connection.security.lazy_openssl import load_openssl_late
        from bookied.process.standard_streams import open_closed_streams, outlive_stderr

        if None in {sys.stdin, sys.stdout, sys.stderr}:
            open_closed_streams()
        outlive_stderr()
        if VARIABLE in os.environ:
            from bkctl.cli.completion.candidates import answer

            sys.exit(answer(self, os.environ))
        # What is imported stays: looking through it for garbage is a tenth of a short command.
        gc.set_threshold(GC_THRESHOLD)
        load_openssl_late()
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

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args and not ctx.resilient_parsing:
            click.echo(ctx.get_help(), color=ctx.color)
            ctx.exit()
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that comes next; for a name of Java's the one that it stands for.

        Raises:
            UsageError: the name is Java's, and the user did not run the line for it.
        """
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            import shlex

            from bkctl.errors import UsageError

            line: list[str] | None = import_path(JAVA_LINE)(args)
            if line is None:
                raise
            why = f"{args[0]!r} is a name of Java's tools"
            use = f"use `{shlex.join([PROGRAM, *line])}`"
            if not _is_wanted(ctx, f"{why}; {use}"):
                raise UsageError(why, next_step=use) from error
            return super().resolve_command(ctx, line)

    def offered(self, ctx: click.Context, kind: str, prefix: str) -> list[CompletionItem]:
        """Return what Tab offers for a type whose values are those that there are just now."""
        if kind == PROFILE.name:
            from click.shell_completion import CompletionItem

            from bkctl.session.profiles import profile_names

            names = profile_names(os.environ)
            return [CompletionItem(name) for name in names if name.startswith(prefix)]
        found: list[CompletionItem] = import_path(LIVE_IDS)(ctx, kind, prefix)
        return found

    def format_options(
        self,
        ctx: click.Context,  # noqa: ARG002 -- click's signature
        formatter: click.HelpFormatter,
    ) -> None:
        """Write the sections; the options are what ``bkctl options`` shows."""
        formatter.write_paragraph()
        width = max(len(name) for names in SECTIONS.values() for name in names)
        for title, names in SECTIONS.items():
            rows = [(f"{name:{width}}", JOINED.get(name) or self.lazy[name][1]) for name in names]
            formatter.write_heading(title)
            with formatter.indentation():
                formatter.write_dl(rows)

    def format_globals(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write what holds for every command: the options, and what it exits with."""
        click.Command.format_options(self, ctx, formatter)
        with formatter.section("Exit status"):
            formatter.write_dl([(str(int(status)), text) for status, text in MEANING.items()])


def _is_wanted(ctx: click.Context, why: str) -> bool:
    """Ask on a terminal whether a line is to be run instead of what was typed."""
    from bkctl.environment_and_streams import Host

    options = options_of(ctx)
    host = ctx.obj if isinstance(ctx.obj, Host) else Host()
    if options.no_input or not (host.stdin.isatty() and host.stderr.isatty()):
        return False
    host.stderr.write(f"{PROGRAM}: {why}\nRun it? [y/N] ")
    host.stderr.flush()
    return options.yes or host.stdin.readline().strip().lower() in {"y", "yes"}


def _report(error: BaseException, session: Session | None, args: Sequence[str]) -> int:
    """Print what ended the command; return the exit status."""
    if isinstance(error, BrokenPipeError):
        from bkctl.errors import PagerLeftError

        if not isinstance(error, PagerLeftError):
            _drop_stdout()
        return ExitStatus.DONE
    from bkctl.cli.error_report import report

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
        return  # A stdout that is not a file (in a test) cannot fail later either.


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
    from bookied.process.own_version import RELEASE, own_version

    python = ".".join(map(str, sys.version_info[:3]))
    click.echo(
        f"bkctl {own_version()}, the Python toolkit for Apache BookKeeper (not the Java bkctl)\n"
        f"Python {python}; protocol, files and metadata of BookKeeper {RELEASE}"
    )
    ctx.exit()


cli = RootGroup(
    name=PROGRAM,
    help="""Ledgers, bookies and clusters of Apache BookKeeper. -u URI or -c FILE names the
    cluster. Next: `bkctl doctor`, or without a cluster `bkctl demo`.
    """,
    lazy=COMMANDS,
    aliases=ALIASES,
    context_settings={"help_option_names": ["-h", "--help"]},
    no_args_is_help=False,
    params=[
        *global_options(root=True),
        click.Option(
            ["--version"],
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=_show_version,
            help="Show the version of bkctl.",
        ),
    ],
)

main: Callable[[], NoReturn] = cli.main


if __name__ == "__main__":
    main()
