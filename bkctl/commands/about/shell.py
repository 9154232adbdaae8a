"""``bkctl shell``: all commands without the prefix, on one connection.

The shell itself is a package of its own that knows nothing of BookKeeper. It is found by its entry
point, so that nothing here imports it.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable
from typing import Any, Final

import click

from bkctl.commands.about.shell_program import ShellHost, ShellProgram
from bkctl.host import Host
from bkctl.options import as_words, options_of

ENTRY_POINT_GROUP: Final = "bkctl.shell"
BUILT_IN: Final = "shell.repl:run"
"""What the entry point of this project names; used where the project is not installed."""


def run(
    ctx: click.Context,
    *,
    path: str | None,
    text: str | None,
    keep_going: bool,
    keys: str | None,
    bar: bool | None,
) -> None:
    """Run a script, or what is typed, on one connection; end with its exit status.

    Raises:
        click.UsageError: there are two scripts, or this is a shell already.
    """
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
        UsageError: the file cannot be read, or has an invalid value.
    """
    if not (is_typed and host.stdin.isatty()):
        return {}  # A script does the same for everybody.
    from bkctl.commands.about.shell_settings import preferences, write_first

    if made := write_first(host.environ):
        click.echo(f"bkctl: {made} was created, with every setting commented out", err=True)
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
