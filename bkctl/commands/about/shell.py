"""``bkctl shell``: all commands without the prefix, on one connection.

The shell itself is a package of its own that knows nothing of BookKeeper. It is found by its entry
point, so that nothing here imports it.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable
from typing import Any, Final

import click

from bkctl.cli.command import Command, locked
from bkctl.exit_status import Effect, ExitStatus
from bkctl.options import as_words, is_global, options_of
from bkctl.session.session import Host

ENTRY_POINT_GROUP: Final = "bkctl.shell"
BUILT_IN: Final = "shell.repl:run"
"""What the entry point of this project names; used where the project is not installed."""


class ShellCommand(Command):
    """The command that runs commands: it has no session, and ``-c`` means a script, as for sh."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for parameter in filter(is_global, self.params):
            parameter.opts = [name for name in parameter.opts if name != "-c"]

    def invoke(self, ctx: click.Context) -> Any:
        with locked(Host(), ctx):
            return click.Command.invoke(self, ctx)


@click.command(
    "shell",
    cls=ShellCommand,
    effect=Effect.READ,
    watch=False,
    examples=(
        ("bkctl shell", "a prompt; Tab completes, `help` lists the commands"),
        ("bkctl shell -c 'use ledger 42; ledger show; ledger read 0-9'", "a few commands"),
        ("bkctl shell nightly.bk --keep-going", "a script, one command a line"),
    ),
    exits=tuple(ExitStatus),
    replaces="nothing in Java's tools: `bookkeeper shell` starts anew for each command",
    short_help="Run commands from a prompt or a script, on one connection.",
)
@click.argument("path", metavar="[FILE | -]", required=False)
@click.option("-c", "-e", "--command", "text", metavar="TEXT", help="Run these commands, and end.")
@click.option("--keep-going", is_flag=True, help="Go on with a script after a failure.")
@click.option(
    "--keys", type=click.Choice(["emacs", "vi"]), envvar="BKCTL_SHELL_KEYS", show_envvar=True,
    help="How lines are edited.  [default: emacs]",
)  # fmt: skip
@click.option("--bar/--no-bar", default=None, help="The line with the cluster's state.")
@click.pass_context
def shell(
    ctx: click.Context,
    *,
    path: str | None,
    text: str | None,
    keep_going: bool,
    keys: str | None,
    bar: bool | None,
) -> None:
    """Run commands without `bkctl` in front of them, on one connection.

    On a terminal there is a prompt, with completion of commands, options and ids that exist, and a
    history that is kept. Options given before or after `shell` hold for each command. A script
    (FILE, stdin or -c) stops at the first command that fails, and ends with its status.
    """
    from bkctl.commands.about.shell_program import ShellHost, ShellProgram

    if text is not None and path is not None:
        raise click.UsageError("a script is in a file or behind -c, not both", ctx)
    root = ctx.find_root()
    if isinstance(root.obj, ShellHost):
        raise click.UsageError("this is the shell; Ctrl-D leaves it", ctx)
    tree = root.command
    assert isinstance(tree, click.Group)
    given = as_words(options_of(ctx))
    program = ShellProgram(tree, ShellHost(), [word for words in given.values() for word in words])
    likes = _likes(program.obj, keys=keys, bar=bar, is_typed=path is None and text is None)
    ctx.exit(find_shell()(program, given, text=text, path=path, keep_going=keep_going, **likes))


def _likes(host: Host, *, keys: str | None, bar: bool | None, is_typed: bool) -> dict[str, Any]:
    """Return how the shell is to be, by options and the user's file; make one at the first start.

    Raises:
        UsageError: the file cannot be read, or says what cannot be.
    """
    if not (is_typed and host.stdin.isatty()):
        return {}  # A script does the same for everybody.
    from bkctl.commands.about.shell_settings import preferences, write_first

    if made := write_first(host.environ):
        click.echo(f"bkctl: {made} is new: it tells what could be set there", err=True)
    said = {"vi": None if keys is None else keys == "vi", "bar": bar}
    given = {name: value for name, value in said.items() if value is not None}
    return {**preferences(host.environ), **given}


def find_shell() -> Callable[..., int]:
    """Return the function that runs a shell: that of the entry point, else the one beside us."""
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        found = list(distribution("bkctl").entry_points.select(group=ENTRY_POINT_GROUP))
    except PackageNotFoundError:
        found = []
    run: Callable[..., int] = found[0].load() if found else pkgutil.resolve_name(BUILT_IN)
    return run
