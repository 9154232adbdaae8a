"""The body of ``bkctl shell``: all commands without the prefix, on one connection; its preferences.

The shell is a package of its own without knowledge of BookKeeper. It is found by its entry point,
so that this module does not import it.
"""

from __future__ import annotations

import os
import pkgutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import click

from bkctl.commands.tool.shell_program import ShellHost, ShellProgram
from bkctl.environment_and_streams import Host
from bkctl.errors import UsageError
from bkctl.global_options import as_words, options_of
from bkctl.session.profiles import profile_path, read_profiles
from bkctl.suggest import did_you_mean

ENTRY_POINT_GROUP: Final = "bkctl.shell"
BUILT_IN: Final = "shell.repl:run"
"""The function of this project's entry point; used if the project is not installed."""


def run(
    ctx: click.Context,
    *,
    path: str | None,
    text: str | None,
    keep_going: bool,
    keys: str | None,
    bar: bool | None,
) -> None:
    """Run a script, or typed commands, on one connection; end with its exit status.

    Raises:
        click.UsageError: two scripts are given, or this process is a shell already.
    """
    if text is not None and path is not None:
        raise click.UsageError("a script is in a file or after -c, not both", ctx)
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
    """Return the preferences of the shell, from options and the user's file.

    The first start creates the file.

    Raises:
        UsageError: the file cannot be read, or has an invalid value.
    """
    if not (is_typed and host.stdin.isatty()):
        return {}  # A script runs the same way for every user.

    if made := write_first(host.environ):
        click.echo(f"bkctl: {made} was created, with every setting commented out", err=True)
    said = {"vi": None if keys is None else keys == "vi", "bar": bar}
    chosen = {name: value for name, value in said.items() if value is not None}
    return {**preferences(host.environ), **chosen}


def find_shell() -> Callable[..., int]:
    """Return the function that runs a shell, from the entry point or else from this project."""
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        found = list(distribution("bkctl").entry_points.select(group=ENTRY_POINT_GROUP))
    except PackageNotFoundError:
        found = []
    run: Callable[..., int] = found[0].load() if found else pkgutil.resolve_name(BUILT_IN)
    return run


KEYS: Final = ("emacs", "vi")


def preferences(environ: Mapping[str, str]) -> dict[str, Any]:
    """Return the shell's preferences in the user's file, as keyword arguments of the shell.

    Raises:
        UsageError: the file cannot be read, or has an invalid value.
    """
    file = read_profiles(environ)
    try:
        return dict(_preference(name, value) for name, value in file.shell.items())
    except ValueError as error:
        raise UsageError(f"{file.path}: shell.{error}") from error


def write_first(environ: Mapping[str, str]) -> Path | None:
    """Create the user's file, with only comments, if it is missing; return its path if created."""
    path = profile_path(environ)
    if path is None or path.exists():
        return None
    from bkctl.commands.settings.profile_file import HEAD, write_profiles

    try:
        write_profiles(path, HEAD)
    except OSError:  # The shell also starts without a writable home directory.
        return None
    return path


def _preference(name: str, value: Any) -> tuple[str, Any]:
    """Return one line of the table as a keyword argument of the shell.

    Raises:
        ValueError: the name is unknown, or the value is not valid.
    """
    if name == "keys" and value in KEYS:
        return "vi", value == "vi"
    if name == "bar" and isinstance(value, bool):
        return name, value
    if name == "timing" and _is_seconds(value):
        return "timing_s", _seconds(value)
    if name == "bell" and _is_seconds(value):
        return "bell_s", _seconds(value)
    if name == "audit" and isinstance(value, str):
        return name, os.path.expanduser(value)  # noqa: PTH111 -- it may be no path
    if name not in _MAY_BE:
        raise ValueError(f"{name}: unknown{did_you_mean(name, _MAY_BE)}")
    raise ValueError(f"{name} is {_MAY_BE[name]}")


_MAY_BE: Final = {
    "keys": "emacs or vi",
    "bar": "true or false",
    "timing": "true, false or seconds",
    "bell": "true, false or seconds",
    "audit": "a file, or syslog",
}


def _is_seconds(value: Any) -> bool:
    return isinstance(value, (bool, int, float)) and value >= 0


def _seconds(value: float) -> float | None:
    """Return a value in seconds: true is 0 (always), false is None (never)."""
    if isinstance(value, bool):
        return 0.0 if value else None
    return float(value)
