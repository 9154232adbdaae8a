"""The values that ``use`` has named, and how they fill the arguments of a command line. No I/O.

A value fills a missing argument of its kind, and replaces ``.``. A value that was printed last only
replaces ``_``. A typed word is never replaced, with one exception: if the argument cannot be that
word and the next argument can, because the next has a type of its own (``read 0-9``: a range, not
an id).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import attrs
import click

HERE: Final = "."
"""The word for the value in use."""

PRINTED: Final = "_"
"""The word for the value that was printed last."""


class CurrentValues:
    """The values in use, by the words of ``use``."""

    def __init__(self, kinds: Mapping[str, click.ParamType[Any]]) -> None:
        self._kinds = kinds
        self._values: dict[str, str] = {}

    def use(self, word: str, value: str | None) -> None:
        """Replace the value in use; ``None`` removes it."""
        assert word in self._kinds, "commands are made from the kinds"
        if value is None:
            self._values.pop(word, None)
        else:
            self._values[word] = value

    def clear(self) -> None:
        self._values.clear()

    @property
    def values(self) -> Mapping[str, str]:
        """The values in use, by word."""
        return self._values

    @property
    def by_type(self) -> Mapping[str, str]:
        """The values in use, by the name of their type."""
        return {self._kinds[word].name: value for word, value in self._values.items()}


def fill(
    ctx: click.Context,
    args: Sequence[str],
    values: Mapping[str, str],
    *,
    only_here: bool = False,
    printed: Mapping[str, str] = MappingProxyType({}),
) -> list[str]:
    """Return the arguments of a command, with missing ones taken from ``values``.

    ``ctx`` is the command's context; ``values`` and ``printed`` are keyed by type name. With
    ``only_here`` values replace only ``.``, which the user has typed. click reports arguments that
    are still missing.
    """
    arguments = [p for p in ctx.command.params if isinstance(p, click.Argument)]
    filled = list(args)
    for sign, known in ((HERE, values), (PRINTED, printed)):
        if sign in filled and any(argument.type.name in known for argument in arguments):
            filled = _with_sign(ctx, filled, arguments, sign, known)
    if only_here or not any(argument.type.name in values for argument in arguments):
        return filled
    words = positional(ctx, filled)
    missing = sum(argument.required for argument in arguments) - len(words)
    first, last = arguments[0], arguments[-1]
    value = values.get(first.type.name)
    if value is not None and first.required and (missing > 0 or _is_next(ctx, arguments, words)):
        filled.insert(0, value)
        missing -= 1
    if missing == 1 and last is not first and last.required and last.type.name in values:
        filled.append(values[last.type.name])
    return filled


def positional(ctx: click.Context, args: Sequence[str]) -> list[str]:
    """Return the words in a command's ``args`` that are neither options nor their values."""
    command = ctx.command
    words = click.Argument(["words"], nargs=-1, type=click.UNPROCESSED)
    options = [p for p in command.params if isinstance(p, click.Option)]
    probe = click.Command(command.name, params=[*options, words])
    with probe.make_context(ctx.info_name, list(args), resilient_parsing=True) as probed:
        return list(probed.params.get("words") or ())


def argument_at(arguments: Sequence[click.Argument], index: int) -> click.Argument | None:
    """Return the argument of the word at an index; only the last argument may have many words."""
    if index < len(arguments):
        return arguments[index]
    return arguments[-1] if arguments[-1].nargs == -1 else None


def _with_sign(
    ctx: click.Context,
    args: list[str],
    arguments: Sequence[click.Argument],
    sign: str,
    values: Mapping[str, str],
) -> list[str]:
    """Replace each sign that is an argument of a kind in ``values``."""
    for at, word in enumerate(args):
        if word != sign:
            continue
        # The sign may be an option's value: parse again with a recognisable word in its place.
        words = positional(ctx, [*args[:at], _PROBE, *args[at + 1 :]])
        if _PROBE in words:
            argument = argument_at(arguments, words.index(_PROBE))
            args[at] = values.get(argument.type.name, sign) if argument else sign
    return args


_PROBE: Final = "\0here"


def _is_next(ctx: click.Context, arguments: Sequence[click.Argument], words: Sequence[str]) -> bool:
    """Return whether the first word can only be the second argument."""
    if len(arguments) <= 1 or not words:
        return False
    first, second = arguments[:2]
    takes_any = isinstance(second.type, click.types.StringParamType)
    return not takes_any and not _takes(ctx, first, words[0]) and _takes(ctx, second, words[0])


def _takes(ctx: click.Context, argument: click.Argument, word: str) -> bool:
    try:
        argument.type.convert(word, argument, ctx)
    except click.UsageError:
        return False
    return True


@attrs.frozen
class CommandPlace:
    """The innermost command that words name.

    ``rest`` are the words after its name. ``is_lost`` is True if the first of them should be a
    command of this group and is not.
    """

    ctx: click.Context
    rest: list[str]
    is_lost: bool = False

    @property
    def is_group(self) -> bool:
        return isinstance(self.ctx.command, click.Group)


def resolve(tree: click.Group, args: Sequence[str], obj: Any = None) -> CommandPlace:
    """Return the command that ``args`` name; nothing runs, and errors are ignored."""
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
    """Return the words after a group's options, for any version of click."""
    protected = getattr(ctx, "_protected_args", None)
    return [*(ctx.protected_args if protected is None else protected), *ctx.args]


def awaited(ctx: click.Context, rest: Sequence[str]) -> click.Parameter | None:
    """Return the parameter of a command for the word after ``rest``, its arguments."""
    if "--" not in rest and (option := _option_before(ctx, rest)) is not None:
        return option
    arguments = [p for p in ctx.command.params if isinstance(p, click.Argument)]
    if not arguments:
        return None
    words = positional(ctx, rest)
    return argument_at(arguments, len(words))


def _option_before(ctx: click.Context, rest: Sequence[str]) -> click.Option | None:
    """Return the option at the end of ``rest`` that lacks values."""
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
