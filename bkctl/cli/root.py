"""The root of the command tree, and the path from a command line to an exit status.

``bkctl --help`` imports only this module, click and small modules: groups are imported when one of
their commands runs. ``command_names`` has the lines of the help.
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
"""The function that returns existing ids for Tab."""

GC_THRESHOLD: Final = 20_000
"""The number of new objects between two garbage collections of Python."""


class RootGroup(Group):
    """The root: turns every end of a command into one line and an exit status."""

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
        # Imported objects are never freed: collections take a tenth of a short command's time.
        gc.set_threshold(GC_THRESHOLD)
        load_openssl_late()
        status = self.run(sys.argv[1:] if args is None else args, obj)
        sys.exit(_flushed(status, lasting=obj is not None))

    def run(self, args: Sequence[str], host: Host | None = None) -> int:
        """Run one command line; return its exit status. Errors are printed, never raised."""
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
        # Otherwise click asks shutil, whose import loads three compression libraries.
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
        """Return the next command; for a Java name the command that replaces it.

        Raises:
            UsageError: the name is Java's, and the user did not run the suggested line.
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
        """Return the completions for a type whose values are the existing objects."""
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
        """Write the sections; ``bkctl options`` shows the options."""
        formatter.write_paragraph()
        width = max(len(name) for names in SECTIONS.values() for name in names)
        for title, names in SECTIONS.items():
            rows = [(f"{name:{width}}", JOINED.get(name) or self.lazy[name][1]) for name in names]
            formatter.write_heading(title)
            with formatter.indentation():
                formatter.write_dl(rows)

    def format_globals(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the part common to every command: the options, and the exit statuses."""
        click.Command.format_options(self, ctx, formatter)
        with formatter.section("Exit status"):
            formatter.write_dl([(str(int(status)), text) for status, text in MEANING.items()])


def _is_wanted(ctx: click.Context, why: str) -> bool:
    """Ask on a terminal whether to run a line instead of the typed line."""
    from bkctl.environment_and_streams import Host

    options = options_of(ctx)
    host = ctx.obj if isinstance(ctx.obj, Host) else Host()
    if options.no_input or not (host.stdin.isatty() and host.stderr.isatty()):
        return False
    host.stderr.write(f"{PROGRAM}: {why}\nRun it? [y/N] ")
    host.stderr.flush()
    return options.yes or host.stdin.readline().strip().lower() in {"y", "yes"}


def _report(error: BaseException, session: Session | None, args: Sequence[str]) -> int:
    """Print the error that ended the command; return the exit status."""
    if isinstance(error, BrokenPipeError):
        from bkctl.errors import PagerLeftError

        if isinstance(error, PagerLeftError):
            return ExitStatus.DONE
        _drop_stdout()
        return ExitStatus.OUTPUT_CLOSED
    from bkctl.cli.error_report import report

    return report(error, session, args)


def _flushed(status: int, *, lasting: bool) -> int:
    """Flush stdout; return the exit status.

    ``lasting`` is true if further commands will use stdout.
    """
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _drop_stdout()
        return status or ExitStatus.OUTPUT_CLOSED
    except KeyboardInterrupt:  # The reader does not read.
        if not lasting:
            _drop_stdout()
        return ExitStatus.INTERRUPTED
    except OSError as error:
        _drop_stdout()
        if status != ExitStatus.FAILED:  # Otherwise the error was already printed.
            click.echo(f"{PROGRAM}: stdout: {error.strerror}", err=True)
        return status or ExitStatus.FAILED
    return status


def _drop_stdout() -> None:
    """Redirect stdout to /dev/null, so that the interpreter's last flush cannot fail."""
    try:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)
    except (OSError, ValueError):
        return  # A stdout that is not a file (in a test) cannot fail later either.


def _terminal_width() -> int:
    """Return the width of help texts."""
    from bkctl.environment_and_streams import columns_of_environment

    width = columns_of_environment()
    if width is None:
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
