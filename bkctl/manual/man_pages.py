"""The manual pages of ``bkctl``, made from its click tree.

``bkctl(1)`` has the parts common to all commands. Each name below it has its own page; the page of
a group shows all its commands.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import attrs
import click

from bkctl.cli.command import Command, Group
from bkctl.exit_status import MEANING, Effect, ExitStatus
from bkctl.global_options import is_global
from bkctl.manual.roff import Page, bold, usage

SEE_ALSO: Final = ("bookied(8)", "bk_server.conf(5)")

_WIDE: Final = 10_000
"""A width in columns at which nothing is cut."""

FILES: Final = (
    ("/etc/bookkeeper/bk_server.conf", "Settings, if nothing else names the cluster."),
    ("$XDG_STATE_HOME/bkctl/history", "History of the shell, readable only by its owner."),
)


@attrs.frozen
class PageFooter:
    """The footer of every page."""

    date: str
    version: str

    @property
    def source(self) -> str:
        return f"bkctl {self.version}"


def pages(tree: click.Group, edition: PageFooter) -> dict[str, str]:
    """Return the text of every page by the name of its file."""
    settings = {**tree.context_settings, "terminal_width": _WIDE}
    root = click.Context(tree, info_name=tree.name, **settings)
    commands = dict(_commands(root))
    found = {"bkctl.1": _root_page(root, commands, edition)}
    for name, command in commands.items():
        found[f"bkctl-{name}.1"] = _page(root, name, command, edition)
    return found


def _commands(ctx: click.Context) -> Iterator[tuple[str, click.Command]]:
    assert isinstance(ctx.command, click.Group)
    for name in ctx.command.list_commands(ctx):
        command = ctx.command.get_command(ctx, name)
        assert command is not None, name
        if not command.hidden:
            yield name, command


def _about(ctx: click.Context, name: str, command: click.Command) -> str:
    """Return the line of a command in the help of its group."""
    if isinstance(ctx.command, Group) and name in ctx.command.lazy:
        return ctx.command.lazy[name][1]
    return command.get_short_help_str(_WIDE)


def _below(ctx: click.Context, name: str, command: click.Command) -> click.Context:
    return click.Context(command, info_name=name, parent=ctx, terminal_width=_WIDE)


# The page of the root ----------------------------------------------------------------------------


def _root_page(
    root: click.Context, commands: Mapping[str, click.Command], edition: PageFooter
) -> str:
    page = Page(
        "bkctl", 1, about="ledgers, bookies and clusters of Apache BookKeeper",
        date=edition.date, source=edition.source,
    )  # fmt: skip
    page.title("SYNOPSIS")
    page.synopsis([("bkctl", "[OPTIONS] COMMAND [ARGS]...")])
    page.title("DESCRIPTION")
    page.help(root.command.help or "")
    page.paragraph(
        "`bkctl COMMAND --help` shows examples, options and exit statuses of one command; each "
        "command below has a manual page named `bkctl-COMMAND`."
    )
    page.title("COMMANDS")
    for name, command in commands.items():
        page.item(bold(name), _about(root, name, command))
    page.title("OPTIONS")
    page.paragraph(
        "Every command takes these, before its name or after it; what is nearer to its name wins, "
        "and the environment comes last."
    )
    _options(page, root, [one for one in root.command.get_params(root) if one.name != "help"])
    page.title("EXIT STATUS")
    _statuses(page, MEANING)
    page.title("ENVIRONMENT")
    for names, option in _variables(root):
        page.item(usage(names), f"As {option}.")
    page.item(bold("NO_COLOR"), "No colour, where it is set and not empty.")
    page.item(bold("PAGER"), "What shows long tables on a terminal; `BKCTL_PAGER` wins.")
    page.title("FILES")
    for path, text in FILES:
        page.item(bold(path), text)
    _see_also(page, [*(f"bkctl-{name}(1)" for name in commands), *SEE_ALSO])
    return page.text


def _variables(root: click.Context) -> Iterator[tuple[str, str]]:
    """Yield the environment variables of the root's options, each with its option."""
    for parameter in root.command.get_params(root):
        if isinstance(parameter, click.Option) and parameter.envvar:
            given = parameter.envvar
            names = [given] if isinstance(given, str) else list(given)
            yield ", ".join(names), max(parameter.opts, key=len)


# The page of a group, or of a command of its own -------------------------------------------------


def _page(root: click.Context, name: str, command: click.Command, edition: PageFooter) -> str:
    ctx = _below(root, name, command)
    page = Page(
        f"bkctl-{name}", 1, about=_about(root, name, command).rstrip("."),
        date=edition.date, source=edition.source,
    )  # fmt: skip
    inner = list(_leaves(ctx)) if isinstance(command, click.Group) else []
    page.title("SYNOPSIS")
    page.synopsis(
        (one.command_path, " ".join(one.command.collect_usage_pieces(one)))
        for one in inner or [ctx]
    )
    page.title("DESCRIPTION")
    page.help(command.help or "")
    if inner:
        page.title("COMMANDS")
        for one in inner:
            page.subtitle(" ".join([one.command_path, *_arguments(one)]))
            page.help(one.command.help or "")
            _command(page, one)
    else:
        _command(page, ctx, alone=True)
    page.title("EXIT STATUS")
    used = {status for one in inner or [ctx] for status in _exits(one.command)}
    _statuses(page, {status: MEANING[status] for status in MEANING if status in used})
    _see_also(page, ["bkctl(1)", *SEE_ALSO])
    return page.text


def _leaves(ctx: click.Context) -> Iterator[click.Context]:
    """Yield the commands of a group, and of the groups in it."""
    for name, command in _commands(ctx):
        below = _below(ctx, name, command)
        if isinstance(command, click.Group):
            yield from _leaves(below)
        else:
            yield below


def _arguments(ctx: click.Context) -> list[str]:
    """Return the words after a command's name in its usage, without the options."""
    pieces = ctx.command.collect_usage_pieces(ctx)
    return [piece for piece in pieces if piece != ctx.command.options_metavar]


def _exits(command: click.Command) -> tuple[ExitStatus, ...]:
    return command.exits if isinstance(command, Command) else ()


def _command(page: Page, ctx: click.Context, *, alone: bool = False) -> None:
    """Add the options, description and examples of a command; with titles if it is ``alone``."""
    command = ctx.command
    own = [one for one in command.params if not is_global(one)]
    if alone and any(isinstance(one, click.Option) for one in own):
        page.title("OPTIONS")
        page.paragraph("Options that every command takes are in `bkctl(1)`.")
    _options(page, ctx, own)
    if not isinstance(command, Command):
        return
    if alone:
        page.title("EXAMPLES")
    else:
        page.paragraph("Examples:")
    for line, does in command.examples:
        page.item(bold(line), f"{does[:1].upper()}{does[1:]}.")
    if alone:
        page.title("NOTES")
    else:
        statuses = ", ".join(str(int(status)) for status in command.exits)
        page.paragraph(f"Exit statuses: {statuses}.")
    if command.effect is not Effect.READ:
        page.paragraph(command.effect_sentence)
    if command.replaces:
        page.paragraph(f"Replaces: {command.replaces}.")


# Parts of pages ----------------------------------------------------------------------------------


def _options(page: Page, ctx: click.Context, parameters: list[click.Parameter]) -> None:
    for parameter in parameters:
        record = parameter.get_help_record(ctx) if isinstance(parameter, click.Option) else None
        if record is not None:
            page.item(usage(record[0]), record[1])


def _statuses(page: Page, meanings: Mapping[ExitStatus, str]) -> None:
    page.small_list(((str(int(status)), text) for status, text in meanings.items()))


def _see_also(page: Page, names: list[str]) -> None:
    page.title("SEE ALSO")
    page.paragraph(", ".join(f"`{name}`" for name in names))
