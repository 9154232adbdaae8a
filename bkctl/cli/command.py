"""The base of the commands: declarations with lazily imported bodies, in lazily imported groups.

The click tree is the only list of commands. A command is declared with its effect on a cluster
(``Effect``), its usage, its exit statuses and the Java command that it replaces. Help, man pages,
completions and tests read the declaration. The body is a function, imported when the command runs.
"""

from __future__ import annotations

import importlib
import re
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import click
from click.core import augment_usage_errors

from bkctl.cli.parameter_types import complete_files
from bkctl.exit_status import FAILURES, MEANING, Effect, ExitStatus, Facility
from bkctl.global_options import WATCH_EVERY_S, WATCHING, global_options, is_global, options_of

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from bkctl.cli.watch import Rounds
    from bkctl.output.views import View
    from bkctl.session.session import Session

_SENTENCE_CHARS_MAX: Final = 200
"""The maximum length of a command's first sentence in the list of its group; it may be wrapped."""
JAVA_LINE: Final = "bkctl.commands.tool.compat:line_for"
"""Returns our command line for one of Java's, if a word is not one of our commands."""

EVERY_COMMAND_EXITS: Final = (ExitStatus.DONE, ExitStatus.USAGE, ExitStatus.INTERRUPTED)
_COMMON_EXITS: Final = frozenset({*EVERY_COMMAND_EXITS, *FAILURES})
"""Statuses that the help of a command lists only by number; `bkctl options` explains them."""

NOTHING: Final = "nothing in Java's tools"
"""The default of ``replaces``: most new commands replace no Java command."""

_SHOWN_FOR_ALL: Final = ("output", "timeout_s")
_SHOWN_FOR_CHANGES: Final = ("yes", "dry_run")
_SHOWN_FOR_WATCHING: Final = ("watch_s", "until")
_SHOWN_FOR_LISTS: Final = ("columns", "sort_by", "filters")


_CLAUSE: Final = re.compile(r"[.;]\s|[.;]$")
"""The end of a clause."""

_EXAMPLE: Final = re.compile(r"\s*(.+?)\s+# ([^\n]+)", re.DOTALL)
"""A command line, which may continue in the next lines, and its description."""

_HYPHEN: Final = "\ue000"
"""Replaces hyphens while texts are wrapped: a line must not end at a hyphen."""

_COMMAND: Final = "\ue001"
"""Repeated, it replaces a command in backquotes while texts are wrapped."""

_QUOTED: Final = re.compile(r"`(?:[^`\n]|\n(?!\n))+`")


_OBVIOUS: Final = re.compile(r"; x>=?[01](?=\])|\s+\[x>=?[01]\]")
"""A range that the help leaves out: `--limit N` is obviously at least 1."""

_LONG_TOO: Final = re.compile(r"(?<=^-\w), --[\w-]+")
"""The long name of an option that also has a short name."""

_ALIKE: Final = 0.7
"""The minimum similarity of suggestions: `ledger create` is not offered for `ledger locate`."""

_NARROW: Final = 58
"""The width below which long options have their own lines, so that their texts have space."""


def import_path(path: str) -> Any:
    """Import a module, and return the object that ``module:name`` names."""
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)


def _with_short_help(declared: dict[str, Any]) -> dict[str, Any]:
    """Add the command's line in its group's list, unless declared: the first clause of its help."""
    text: str = declared.get("help", "")
    return {"short_help": _CLAUSE.split(text.strip())[0] + ".", **declared}


class _Formatter(click.HelpFormatter):
    """Wraps texts only between words, and not within backquotes, so that commands can be pasted."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._commands: deque[str] = deque()

    def write(self, string: str) -> None:
        whole = re.sub(f"{_COMMAND}+", lambda _: self._commands.popleft(), string)
        super().write(whole.replace(_HYPHEN, "-"))

    def write_text(self, text: str) -> None:
        super().write_text(self._unbroken(text, self.width - self.current_indent))

    def _unbroken(self, text: str, width: int) -> str:
        """Return a text whose commands are not wrapped; a longer command has its own line.

        click breaks words that are wider than a line. A command may be next to a bracket or a
        comma.
        """

        def kept(found: re.Match[str]) -> str:
            command = " ".join(found[0].split())
            self._commands.append(command)
            return _COMMAND * max(1, min(len(command), width - 4))

        return _QUOTED.sub(kept, text).replace("-", _HYPHEN)

    def write_dl(
        self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2
    ) -> None:
        if self.width < _NARROW:
            col_max = self.width * 2 // 5
        width = self.width - col_max - col_spacing - 2
        whole = [(first, self._unbroken(second, width)) for first, second in rows]
        super().write_dl(whole, col_max, col_spacing)


class _Context(click.Context):
    formatter_class = _Formatter
    elsewhere: str | None = None
    """The path of the command below this context, if an alias led out of the group."""

    @property
    def command_path(self) -> str:
        if isinstance(self.parent, _Context) and self.parent.elsewhere:
            return f"{self.find_root().command_path} {self.parent.elsewhere}"
        return super().command_path


def _with_seconds(args: Sequence[str]) -> list[str]:
    """Return the command line with a value for each ``--watch``.

    The value is optional, and click would use the next word as the value: an id, or a group's name.
    """
    words = list(args)
    end = words.index("--") if "--" in words else len(words)
    return [
        f"--watch={WATCH_EVERY_S:g}" if word == "--watch" and n < end else word
        for n, word in enumerate(words)
    ]


class Command(click.Command):
    """A command with the declarations for its help."""

    context_class = _Context

    def __init__(
        self,
        name: str,
        *,
        body: str,
        effect: Effect,
        examples: str,
        exits: Sequence[ExitStatus] = (),
        replaces: str = NOTHING,
        params: Sequence[click.Parameter] = (),
        without: Collection[Facility] = (),
        **kwargs: Any,
    ) -> None:
        """``examples`` are command lines, each with its description after a ``#``.

        ``exits`` are the statuses besides 0 and 2.

        ``body`` is ``module:function``, called with the session, and with each of ``params`` by
        name. ``without`` names the facilities that this command lacks. ``kwargs`` are those of
        ``click.Command``, and ``prints``: the classes of the results, as ``module:Class`` or by
        their names in the body's module. ``--columns``, ``--sort-by`` and ``--filter`` take the
        names of their fields.
        """
        self.prints: tuple[str, ...] = tuple(kwargs.pop("prints", ()))
        super().__init__(name, params=list(params), **_with_short_help(kwargs))
        self.body = body
        self.effect = effect
        self._examples = examples
        self.exits = tuple(sorted({*EVERY_COMMAND_EXITS, *exits}))
        self.replaces = replaces
        self.takes_profile = Facility.PROFILE not in without
        self.can_be_watched = effect is Effect.READ and Facility.WATCH not in without
        self.params.extend(
            option
            for option in global_options(root=False)
            if self.can_be_watched or option.name not in WATCHING
        )
        complete_files(self.params)

    @property
    def examples(self) -> list[tuple[str, str]]:
        """The example command lines, each with its description."""
        found = _EXAMPLE.findall(self._examples)
        return [(" ".join(line.split()), does) for line, does in found]

    @property
    def effect_sentence(self) -> str:
        """The effect of the command beyond reading, and the option that causes or prevents it."""
        names = {param.name for param in self.params}
        if "skip_open" in names:
            return "This command may fence writers of open ledgers; not with --skip-open."
        only = "recover" in names
        return f"{'With --recover, this' if only else 'This'} command {self.effect.value}."

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            # click's message about a missing value does not name the command.
            with augment_usage_errors(ctx):
                rest = super().parse_args(ctx, _with_seconds(args))
        except click.UsageError as error:
            from bkctl.suggest import in_own_options

            if (words := in_own_options(args, ctx.command_path)) != list(args):
                ctx.params.clear()
                return self.parse_args(ctx, words)
            name = getattr(error, "option_name", "")
            if not isinstance(error, click.NoSuchOption) or name not in {"--watch", "--until"}:
                raise
            text = (
                f"`{ctx.command_path}` changes something; {name} works only with commands that read"
            )
            raise click.UsageError(text, ctx) from error
        options_of(ctx)  # Removes the global options from the body's arguments.
        return rest

    def invoke(self, ctx: click.Context) -> Any:
        """Run the callback with a session for this command as the context's object."""
        from bkctl.environment_and_streams import Host
        from bkctl.session.session import session_for

        host = ctx.obj if isinstance(ctx.obj, Host) else Host()
        with augment_usage_errors(ctx), session_for(host, ctx) as session:
            ctx.obj = session
            rounds = self._rounds(session)
            if rounds is None:
                return self._run(ctx)
            return rounds(session, lambda: self._run(ctx))

    def load(self) -> Callable[..., Any]:
        """Import the command's body, and return it."""
        body: Callable[..., Any] = import_path(self.body)
        return body

    def _run(self, ctx: click.Context) -> Any:
        body, options = self.load(), ctx.obj.options
        if self.prints and (options.columns or options.sort_by or options.filters):
            from bkctl.output.filters import require_fields

            require_fields(options, self.views())
        return body(ctx.obj, **ctx.params)

    def views(self) -> Iterator[View]:
        """Yield the view of each class of results."""
        from bkctl.output.views import view_of

        module = self.body.partition(":")[0]
        for name in self.prints:
            yield view_of(import_path(name if ":" in name else f"{module}:{name}"))

    def _rounds(self, session: Session) -> Rounds | None:
        """Return the rounds of a watched command; None if it cannot or need not be watched."""
        options = session.options
        if not self.can_be_watched or (options.watch_s is None and options.until is None):
            return None
        from bkctl.cli.watch import rounds_of

        return rounds_of(session, self.exits)

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_help_text(ctx, formatter)
        with formatter.section("Examples"):
            for line, does in self.examples:
                formatter.write(f"{'':{formatter.current_indent}}{line}\n")
                formatter.indent()
                formatter.write_text(does)
                formatter.dedent()

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        shown = _SHOWN_FOR_ALL + (() if self.effect is Effect.READ else _SHOWN_FOR_CHANGES)
        shown += _SHOWN_FOR_WATCHING if self.can_be_watched else ()
        shown += _SHOWN_FOR_LISTS if self.name == "list" else ()
        own: list[tuple[str, str]] = []
        common: list[str] = []
        for one in self.params:
            record = one.get_help_record(ctx) if isinstance(one, click.Option) else None
            if record is not None and not is_global(one):
                own.append((record[0], _OBVIOUS.sub("", record[1])))
            elif record is not None and one.name in shown:
                common.append(_LONG_TOO.sub("", record[0]))
        if own:
            with formatter.section("Options"):
                formatter.write_dl(own)
        with formatter.section("Common options"):
            formatter.write_text(", ".join([*common, "--help"]))

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        own = [status for status in self.exits if status not in _COMMON_EXITS]
        if own:
            with formatter.section("Exit status"):
                formatter.write_dl([(str(int(status)), MEANING[status]) for status in own])
        others = ", ".join(str(int(status)) for status in self.exits if status not in own)
        formatter.write_paragraph()
        formatter.write_text(f"`bkctl options` explains common options, and statuses {others}.")
        if self.effect is not Effect.READ:
            formatter.write_text(self.effect_sentence)
        if self.replaces != NOTHING:
            formatter.write_text(f"Replaces: {self.replaces}")
        super().format_epilog(ctx, formatter)


class Group(click.Group):
    """A group of commands whose modules may be imported only when used.

    ``lazy`` maps a name to ``module:attribute`` and its line in the help. ``order`` lists names
    that the help shows first. ``aliases`` maps a hidden name to its words after the program's name:
    ``cookie show``, or ``bookie list -o wide``.
    """

    context_class = _Context

    def __init__(
        self,
        *args: Any,
        lazy: Mapping[str, tuple[str, str]] | None = None,
        order: Sequence[str] = (),
        aliases: Mapping[str, str] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **_with_short_help(kwargs))
        self.lazy, self._order = dict(lazy or {}), tuple(order)
        self.aliases = dict(aliases or {})
        complete_files(self.params)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        # Only the words before the command's name: the command parses the others.
        rest = super().parse_args(ctx, _with_seconds(args))
        options_of(ctx)
        return rest

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 -- click's signature
        """Return the names in the help, in the order of their declarations."""
        names = dict.fromkeys([*self._order, *self.lazy, *self.commands])
        return [name for name in names if name in self.lazy or name in self.commands]

    def command(  # type: ignore[override]  # A declaration, where click has a decorator.
        self, name: str, **declared: Any
    ) -> Command:
        """Add a command to this group, with the arguments of ``Command``."""
        made = Command(name, **declared)
        self.add_command(made)
        return made

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in self.aliases:
            return self._meant(ctx, cmd_name)[0]
        if cmd_name in self.lazy and cmd_name not in self.commands:
            self.add_command(import_path(self.lazy[cmd_name][0]), cmd_name)
        return super().get_command(ctx, cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows = [(name, self._short_help(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, text in rows if text is not None])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the commands that complete a word, without importing their modules.

        After a word that is not a command the result is empty.
        """
        from click.shell_completion import CompletionItem

        if getattr(ctx, "_protected_args", ()):
            return []
        rows = ((name, self._short_help(ctx, name)) for name in self.list_commands(ctx))
        found = [
            CompletionItem(name, help=text)
            for name, text in rows
            if text is not None and name.startswith(incomplete)
        ]
        return found + click.Command.shell_complete(self, ctx, incomplete)

    def _short_help(self, ctx: click.Context, name: str) -> str | None:
        if name in self.lazy:
            return self.lazy[name][1]
        command = self.get_command(ctx, name)
        if command is None or command.hidden:
            return None
        return command.get_short_help_str(_SENTENCE_CHARS_MAX)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] in self.aliases and isinstance(ctx, _Context):
            command, words = self._meant(ctx, args[0])
            if self.commands.get(command.name or "") is not command:
                line = self.aliases[args[0]].split()
                ctx.elsewhere = " ".join(line[: len(line) - len(words)])
            return command.name, command, [*words, *args[1:]]
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            # click would suggest `format` for `disk compact`.
            near = self.similar(ctx, args[0])
            meant = f"; did you mean {' or '.join(near)}?" if near else ""
            raise click.UsageError(f"no such command {args[0]!r}{meant}", ctx) from error

    def _meant(self, ctx: click.Context, alias: str) -> tuple[click.Command, list[str]]:
        """Return the command of an alias, and the alias's further words."""
        first, *rest = self.aliases[alias].split()
        words = rest if first == self.name else [first, *rest]
        command: click.Command = self if first == self.name else ctx.find_root().command
        while isinstance(command, click.Group) and words:
            below = command.get_command(ctx, words.pop(0))
            assert below is not None, self.aliases[alias]
            command = below
        return command, words

    def similar(self, ctx: click.Context, word: str) -> list[str]:
        """Return the command lines that are similar to ``word``, nearest first."""
        from bkctl.suggest import LINES, lines_for_object, meant_elsewhere, nearest

        path, known = ctx.command_path, self.list_commands(ctx)
        if lines := LINES.get(f"{self.name if ctx.parent else 'root'} {word}"):
            return [f"`{ctx.find_root().command_path} {line}`" for line in lines]
        near = meant_elsewhere(word, known) or nearest(word, known, count=2, least=_ALIKE)
        return [f"`{path} {name}`" for name in near] or [
            f"`{path} {name} {word}`"
            for name in known
            if isinstance(inner := self.get_command(ctx, name), click.Group)
            and word in inner.list_commands(ctx)
        ] + [
            f"`{ctx.find_root().command_path} {line}`"
            for line in lines_for_object(self.name or "", word)
        ]


class SubGroup(Group):
    """A group below the root: it accepts the global options too, and shows only its commands."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params.extend(global_options(root=False))
        complete_files(self.params)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the next command.

        Raises:
            UsageError: it does not exist; for a name in a group of Java's bkctl with the line to
                use.
        """
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            for group in (self.name, f"{self.name}s"):  # Java has bookie and bookies.
                line = import_path(JAVA_LINE)([group, *args], [2])
                if line is not None:
                    import shlex

                    from bkctl.errors import UsageError

                    why = f"{args[0]!r} is a name of Java's tools"
                    use = f"use `{shlex.join(['bkctl', *line])}`"
                    raise UsageError(why, next_step=use) from error
            raise

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self.format_commands(ctx, formatter)
        formatter.write_paragraph()
        formatter.write_text(
            f"`{ctx.command_path} COMMAND --help` shows examples and options; "
            "`bkctl options` the options that every command takes."
        )
