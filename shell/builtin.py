"""The shell's own commands: a click tree like the program's, with the same completion."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from shell.settings import value_type

if TYPE_CHECKING:
    from shell.shell import Shell

LAST: Final = 20
"""Lines of the history that are shown by default."""


class _BuiltinGroup(click.Group):
    """A group whose help is a list of commands, without the parts of a program's help."""

    def get_usage(self, ctx: click.Context) -> str:
        return "Usage: " + " ".join(filter(None, (ctx.command_path.strip(), "COMMAND")))


def commands(shell: Shell) -> click.Group:
    """Return the shell's own commands."""
    group = _BuiltinGroup(
        name="", commands=[_help, _timing, _refresh, _history, _clear, _exit, _quit]
    )
    group.add_command(_use(shell))
    group.add_command(_set(shell))
    group.add_command(_unset(shell))
    return group


@click.command("help")
@click.argument("words", nargs=-1, metavar="[COMMAND]...")
@click.pass_obj
def _help(shell: Shell, words: Sequence[str]) -> None:
    """Show the commands, or the help of one."""
    if words and words[0] in shell.own.commands:
        _end(shell.own.main([*words, "--help"], prog_name="", standalone_mode=False))
        return
    words = shell.without_name(words)
    if words:
        _end(shell.run_tree([*words, "--help"]))
    else:
        click.echo(overview(shell))


def overview(shell: Shell) -> str:
    """Return the commands, the program's first."""
    tree = shell.program.tree
    ctx = click.Context(tree, info_name=shell.name, obj=shell.program.obj)
    formatter = click.HelpFormatter(max_width=shell.columns)
    tree.format_commands(ctx, formatter)
    rows = [
        (name, command.get_short_help_str(shell.columns))
        for name, command in shell.own.commands.items()
        if not command.hidden
    ]
    with formatter.section("Of the shell"):
        formatter.write_dl([*rows, *_SIGNS])
    formatter.write_paragraph()
    formatter.write_text("`help COMMAND` shows more of one; the first Tab shows what could follow.")
    return formatter.getvalue().strip("\n")


_SIGNS: Final = (
    ("! COMMAND", "Run a command of the system."),
    ("... | COMMAND", "Give the output to a command of the system."),
    ("... > FILE", "Write the output into a file; >> adds to it, < reads from one."),
    (". and _", "In place of an id: what is in use, what was printed last."),
    ("Ctrl-R", "Search in what was typed."),
    ("Ctrl-C, Ctrl-D", "End the command; leave the shell."),
)


def _end(status: Any) -> None:
    """End a command of the shell with a status, if it returned one."""
    if status:
        raise SystemExit(status)


def _use(shell: Shell) -> click.Group:
    kinds = shell.program.kinds
    example = next(iter(kinds), "THING")

    class Use(click.Group):
        """The current values of commands and, by their names, the places that commands use."""

        def list_commands(self, ctx: click.Context) -> list[str]:
            return [*super().list_commands(ctx), *_places(shell)]

        def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
            found = super().get_command(ctx, cmd_name)
            return found if found or cmd_name not in _places(shell) else _go(shell, cmd_name)

        def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
            if self.get_command(ctx, args[0]) is None:
                place = f", or the name of a {shell.program.place}" if shell.program.place else ""
                raise click.UsageError(
                    f"use: unknown {args[0]!r}; it takes {', '.join(self.commands)}{place}", ctx
                )
            return super().resolve_command(ctx, args)

    @click.group(
        "use",
        cls=Use,
        invoke_without_command=True,
        help=f"Name what commands are about, so that it can be left out.\n\n"
        f"`use {example} ID` names one, `use none` forgets all, `use` shows what is in use. "
        f"Where other words follow, a dot stands for it.{_of_places(shell)}",
        short_help="Name what commands are about, so that it can be left out.",
    )
    @click.pass_context
    def use(ctx: click.Context) -> None:
        if ctx.invoked_subcommand is None:
            for word, value in shell.current.values.items():
                click.echo(f"{word} {value}")

    for word, kind in kinds.items():
        use.add_command(_use_one(shell, word, kind))

    @use.command("none", help="Forget what is in use.")
    def none() -> None:
        shell.current.clear()

    return use


def _of_places(shell: Shell) -> str:
    place = shell.program.place
    return f"\n\n`use NAME` goes to a {place}, as `set {place} NAME` does." if place else ""


def _places(shell: Shell) -> list[str]:
    """Return the values of the option that selects the place."""
    option = shell.settings.options.get(shell.program.place)
    if option is None:
        return []
    return [found.value for found in option.type.shell_complete(shell.root(), option, "")]


def _go(shell: Shell, name: str) -> click.Command:
    place = shell.program.place

    def go() -> None:
        elsewhere = shell.where()[0] != name
        names = ", ".join(shell.program.open_resources) if elsewhere else ""
        if (
            names
            and shell.is_typed
            and not click.confirm(
                f"{names}: this shell holds it open for writing. Release it now?", err=True
            )
        ):
            raise SystemExit(1)
        if elsewhere:
            shell.release()
        shell.settings.drop(shell.program.go(name))
        shell.settings.set(place, name)
        shell.current.clear()  # The values in use belong to the other place.
        shell.live.questions.doubt()

    return click.Command(name, callback=go, help=f"Go to the {place} {name}.")


def _use_one(shell: Shell, word: str, kind: click.ParamType[Any]) -> click.Command:
    def take(value: str | None) -> None:
        shell.current.use(word, value)

    value = click.Argument(["value"], type=_AsTyped(kind, shell), required=False, metavar="ID")
    return click.Command(
        word, callback=take, params=[value], help=f"Use one {word}; without an ID, none any more."
    )


class _AsTyped(click.ParamType):  # type: ignore[type-arg] # generic for type checkers only
    """A type that refuses the same words as another type, and keeps the word as typed."""

    def __init__(self, kind: click.ParamType[Any], shell: Shell) -> None:
        self.kind, self.name, self._shell = kind, kind.name, shell

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            self.kind.convert(value, param, self._shell.root())
        except click.UsageError as error:
            error.ctx = ctx
            raise
        return value

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> Any:
        return self.kind.shell_complete(ctx, param, incomplete)


def _set(shell: Shell) -> click.Group:
    @click.group(
        "set",
        invoke_without_command=True,
        help="Set an option for all commands to come.\n\n"
        "`set output json` is as if each command had --output json; `set` shows what is set.",
        short_help="Set an option for all commands to come.",
    )
    @click.pass_context
    def set_(ctx: click.Context) -> None:
        if ctx.invoked_subcommand is None:
            click.echo(" ".join(shell.settings.words))

    for name, option in shell.settings.options.items():
        set_.add_command(_set_one(shell, name, option))
    return set_


def _set_one(shell: Shell, name: str, option: click.Option) -> click.Command:
    def take(value: str) -> None:
        shell.settings.set(name, value)

    value = click.Argument(
        ["value"],
        type=_AsTyped(value_type(option), shell),
        required=not option.is_flag,
        default="on" if option.is_flag else None,
        metavar=option.metavar or "VALUE",
    )
    return click.Command(name, callback=take, params=[value], help=option.help)


def _unset(shell: Shell) -> click.Command:
    @click.command("unset", help="Take back what was set; without a NAME, everything.")
    @click.argument("names", nargs=-1, type=click.Choice(list(shell.settings.options)))
    def unset(names: Sequence[str]) -> None:
        for name in names or shell.settings.options:
            shell.settings.unset(name)

    return unset


@click.command("timing")
@click.argument("how", required=False, metavar="[on|off|SECONDS]")
@click.pass_obj
def _timing(shell: Shell, how: str | None) -> None:
    """Print the time of commands: of all, of none, or of those that took at least a given time."""
    if how is None:
        click.echo("off" if shell.timing_s is None else f"from {shell.timing_s:g} s on")
        return
    try:
        shell.timing_s = {"on": 0.0, "off": None}[how] if how in {"on", "off"} else _seconds(how)
    except ValueError as error:
        raise click.UsageError(f"{how!r} is not on, off or a number of seconds") from error


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 <= seconds < math.inf:
        raise ValueError(text)
    return seconds


@click.command("refresh")
@click.pass_obj
def _refresh(shell: Shell) -> None:
    """Load completion values and the bar's state again."""
    shell.live.questions.doubt()


@click.command("history")
@click.argument("text", required=False)
@click.option(
    "-n", "last", type=click.IntRange(1), default=LAST, show_default=True, help="So many."
)
@click.pass_obj
def _history(shell: Shell, text: str | None, last: int) -> None:
    """Show the last lines of the history, or the last ones with TEXT. Ctrl-R searches."""
    for line in [line for line in shell.history if not text or text in line][-last:]:
        click.echo(line)


@click.command("clear", hidden=True)
def _clear() -> None:
    """Clear the screen; Ctrl-L does too."""
    click.clear()


@click.command("exit")
@click.argument("status", type=click.IntRange(0, 255), default=0)
@click.pass_obj
def _exit(shell: Shell, status: int) -> None:
    """Leave the shell, with STATUS if it is given; Ctrl-D does too."""
    shell.leaving = status


@click.command("quit", hidden=True)
@click.pass_obj
def _quit(shell: Shell) -> None:
    """Leave the shell."""
    shell.leaving = 0
