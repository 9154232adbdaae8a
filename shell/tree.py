"""Questions about a click tree: which command words name, and what could come next."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import attrs
import click

from shell.context import argument_at, positional


@attrs.frozen
class CommandPlace:
    """The innermost command that words name.

    ``rest`` is what follows its name; ``is_lost``: the first of these should be the name of a
    command of this group, and is not.
    """

    ctx: click.Context
    rest: list[str]
    is_lost: bool = False

    @property
    def is_group(self) -> bool:
        return isinstance(self.ctx.command, click.Group)


def resolve(tree: click.Group, args: Sequence[str], obj: Any = None) -> CommandPlace:
    """Return the place that ``args`` lead to. Nothing is run, nothing is complained about."""
    rest = list(args)
    ctx = tree.make_context(tree.name, list(rest), obj=obj, resilient_parsing=True)
    while isinstance(ctx.command, click.Group) and (left := _left_over(ctx)):
        name, command, behind = ctx.command.resolve_command(ctx, left)
        if command is None:
            return CommandPlace(ctx, left, is_lost=True)
        rest = behind
        ctx = command.make_context(name, list(rest), parent=ctx, resilient_parsing=True)
    return CommandPlace(ctx, rest)


def _left_over(ctx: click.Context) -> list[str]:
    """Return what follows a group's options, wherever this click keeps it."""
    protected = getattr(ctx, "_protected_args", None)
    return [*(ctx.protected_args if protected is None else protected), *ctx.args]


def awaited(ctx: click.Context, rest: Sequence[str]) -> click.Parameter | None:
    """Return the parameter of a command that the word behind ``rest``, its arguments, is for."""
    if "--" not in rest and (option := _option_before(ctx, rest)) is not None:
        return option
    arguments = [p for p in ctx.command.params if isinstance(p, click.Argument)]
    if not arguments:
        return None
    words = positional(ctx, rest)
    return argument_at(arguments, len(words))


def _option_before(ctx: click.Context, rest: Sequence[str]) -> click.Option | None:
    """Return the option at the end of ``rest`` that has not got all its values."""
    for option in options(ctx):
        takes = 0 if option.is_flag or option.count else option.nargs
        if any(word in named(option) for word in rest[-takes:] if takes):
            return option
    return None


def options(ctx: click.Context) -> Iterator[click.Option]:
    """Yield the options of a command, help included."""
    return (p for p in ctx.command.get_params(ctx) if isinstance(p, click.Option))


def named(option: click.Option) -> list[str]:
    """Return all the forms of an option: ``-y``, ``--yes``."""
    return [*option.opts, *option.secondary_opts]
