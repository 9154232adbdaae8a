"""The options that every command accepts, before or after the command's name.

``bkctl --json ledger list`` and ``bkctl ledger list --json`` mean the same. Each option also has an
environment variable, ``BKCTL_`` and its name. The precedence is: command, group, root, environment.
"""

from __future__ import annotations

import functools
import os
import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import click
from click.core import ParameterSource

if TYPE_CHECKING:
    from typing import TypeGuard

    from click.shell_completion import CompletionItem

    ParamType = click.ParamType[Any]  # Generic for type checkers only, before click 8.4.
else:
    ParamType = click.ParamType

SCHEMA: Final = 1
"""The version of every machine form; fields are only ever added to it."""

OUTPUTS: Final = ("table", "wide", "json", "jsonl", "yaml", "csv", "id")
ID_FORMATS: Final = ("long", "hex", "uuid")
ENTRY_FORMATS: Final = ("string", "hex", "base64", "json", "raw")
LOG_LEVELS: Final = ("debug", "info", "warn", "error", "critical")


class LiveType(ParamType):
    """A type whose values are existing objects; Tab asks the root of the tree for them."""

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        del param  # All parameters of one type have the same values.
        offered = getattr(ctx.find_root().command, "offered", None)
        found: list[CompletionItem] = offered(ctx, self.name, incomplete) if offered else []
        return found


class ProfileType(LiveType):
    """The name of a profile."""

    name = "profile"


PROFILE: Final = ProfileType()

NUMBER_MAX: Final = 1e9
"""The maximum of every numeric option; as seconds it is 31 years, and every clock supports it."""


class Number(click.FloatRange):
    """A number that can be counted or waited for: neither NaN nor infinite."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the number."""
        number: float = super().convert(value, param, ctx)
        if not number <= NUMBER_MAX:  # NaN is not below any number.
            self.fail(f"{value} is too large, or not a number", param, ctx)
        return number


class Seconds(Number):
    """A number of seconds, or a time with units: ``90``, ``1.5``, ``5m``, ``1h30m``."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the seconds."""
        if isinstance(value, str) and value[:1].isdigit() and value[-1:].isalpha():
            from bkctl.parse_quantities import parse_duration

            try:
                value = parse_duration(value)
            except ValueError as error:
                self.fail(str(error), param, ctx)
        return super().convert(value, param, ctx)


WATCH_EVERY_S: Final = 2.0

OF_PROFILE: Final = "profile "
"""The begin of the origin of a profile's value."""

_META: Final = "bkctl.global_options"


class Options:
    """The values of the global options for one command."""

    def __init__(self) -> None:
        self.args: tuple[str, ...] = ()
        """The command line, without the program's name."""
        self.conf: str | None = None
        self.service_uri: str | None = None
        self.profile: str | None = None
        self.output: str | None = None
        self.ledger_id_format = "long"
        self.entry_format: str | None = None
        self.timeout_s: float = 0.0
        self.yes = False
        self.no_input = False
        self.dry_run = False
        self.overrides: tuple[str, ...] = ()
        self.color = "auto"
        self.columns: str | None = None
        self.sort_by: str | None = None
        self.filters: tuple[str, ...] = ()
        self.watch_s: float | None = None
        self.until: str | None = None
        self.no_headers = False
        self.exact = False
        self.utc = False
        self.show_secrets = False
        self.no_pager = False
        self.progress = "auto"
        self.quiet = False
        self.verbose = 0
        self.log_level: str | None = None
        self.origins: dict[str, str] = {}
        """The flag, variable or profile that set an option, by attribute."""
        self.used_profile: Any = None
        """The ``session.profiles.Profile`` of this command, if any."""
        self.profile_is_used = False

    def again(self, *more: str) -> str:
        """Return this command line with more options, for pasting."""
        args = [one for one in self.args if one != "--no-input" or "--yes" not in more]
        return shlex.join(["bkctl", *args, *more])

    def is_typed(self, name: str) -> bool:
        """Return whether an option is on the command line."""
        return self.origins.get(name, "").startswith("-")

    def is_of_profile(self, name: str) -> bool:
        """Return whether a profile set an option."""
        return self.origins.get(name, "").startswith(OF_PROFILE)

    @property
    def is_for_people(self) -> bool:
        """True if results are shown as a table or as sentences: notes may be next to them."""
        return self.output in {None, "table", "wide"}

    @property
    def ids_only(self) -> bool:
        """True if only the ids of values are needed, so that nothing else is read."""
        return self.output == "id" and not self.filters and not self.sort_by and not self.until


def options_of(ctx: click.Context) -> Options:
    """Return the options parsed so far on this command line; ``ctx.params`` keeps the others."""
    options: Options = ctx.meta.setdefault(_META, Options())
    by_name = {option.name: option for option in ctx.command.params if is_global(option)}
    for name in [name for name in ctx.params if name in by_name]:  # The order of the command line.
        option, value = by_name[name], ctx.params.pop(name)
        source = ctx.get_parameter_source(name)
        if source in {ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT}:
            option.store(options, source, value)
    return options


def cluster_of_variables(environ: Mapping[str, str]) -> Options:
    """Return the settings file, service URI and profile from the ``BKCTL_*`` variables."""
    options = Options()
    for option in _made(root=True):
        if option.to in {"conf", "service_uri", "profile"}:
            assert isinstance(option.envvar, list)
            for name in [name for name in option.envvar if environ.get(name)][:1]:
                setattr(options, option.to, environ[name])
                options.origins[option.to] = name
    return options


def as_words(options: Options) -> dict[str, tuple[str, ...]]:
    """Return the non-default options as words of a command line, by long names.

    Options for a single command are left out.
    """
    defaults, found = Options(), {}
    for option in _made(root=True):
        value = getattr(options, option.to)
        if option.const is None and not option.per_run and value != getattr(defaults, option.to):
            name = _long(option.opts)
            found[name.lstrip("-")] = option.words(name, value)
    return found


def global_options(*, root: bool) -> list[click.Parameter]:
    """Return the options, for the root (with environment variables) or for a command.

    All commands share theirs: separate options would take longer than the rest of a help text.
    """
    return list(_made(root=True) if root else _of_commands())


def _made(*, root: bool) -> list[_GlobalOption]:
    return [_GlobalOption(*args, root=root, **kwargs) for args, kwargs in _DECLARED]


@functools.cache
def _of_commands() -> list[_GlobalOption]:
    return _made(root=False)


WATCHING: Final = frozenset({"watch_s", "until"})
"""The options of commands that can be watched."""


def is_global(parameter: click.Parameter) -> TypeGuard[_GlobalOption]:
    """Return whether a parameter is an option of every command."""
    return isinstance(parameter, _GlobalOption)


class _GlobalOption(click.Option):
    """An option whose value is stored in ``Options``; command bodies never get it."""

    def __init__(
        self,
        *args: Any,
        root: bool,
        to: str = "",
        const: Any = None,
        also_env: Sequence[str] = (),
        per_run: bool = False,
        **kw: Any,
    ) -> None:
        """``also_env`` are variables of other tools, used after ``BKCTL_<NAME>``.

        ``per_run`` is true for an option of a single command, not of all commands of a shell.
        """
        super().__init__(
            list(args),
            # Eager: they decide the parsing of others, such as ``--ledger-id-format``.
            is_eager=True,
            envvar=[_variable(args), *also_env] if root else None,
            show_envvar=root,
            **kw,
        )
        self.per_run = per_run
        self.to, self.const = to or self.name or "", const

    def store(self, options: Options, source: ParameterSource, value: Any) -> None:
        """Store a value and its origin."""
        options.origins[self.to] = self._origin(source)
        if self.const is not None:
            value = self.const if value else getattr(options, self.to)
        elif self.multiple or self.count:
            value = getattr(options, self.to) + value
        setattr(options, self.to, value)

    def _origin(self, source: ParameterSource) -> str:
        """Return the origin of this option's value: a flag or a variable."""
        if source is ParameterSource.COMMANDLINE:
            return _long(self.opts)
        assert isinstance(self.envvar, list)
        return next(str(name) for name in self.envvar if os.environ.get(name))

    def words(self, name: str, value: Any) -> tuple[str, ...]:
        """Return the words that set this option to a value."""
        if self.is_flag or self.count:
            return (name,) * int(value)
        values = value if self.multiple else (value,)
        return tuple(word for one in values for word in (name, str(one)))


def _long(names: Sequence[str]) -> str:
    """Return the name of an option with two dashes, if it has one."""
    return max(names, key=lambda name: (name.startswith("--"), len(name)))


def _variable(names: Sequence[str]) -> str:
    """Return the environment variable of an option."""
    word = _long([name for name in names if name.startswith("-")]).lstrip("-")
    return "BKCTL_" + word.replace("-", "_").upper()


def _option(*args: str, **kwargs: Any) -> tuple[Sequence[str], dict[str, Any]]:
    return args, kwargs


_DECLARED: Final = (
    _option(
        "-c",
        "--conf",
        metavar="FILE",
        also_env=("BOOKIE_CONF", "CLI_CONF"),
        help="Settings file in the bookie's format (bk_server.conf).",
    ),
    _option(
        "-u",
        "--service-uri",
        metavar="URI",
        help="The cluster's metadata: zk+hierarchical://zk1:2181;zk2:2181/ledgers or sqlite:///path.",
    ),
    _option(
        "--profile",
        type=PROFILE,
        metavar="NAME",
        help="A profile of `bkctl profile list`; `none` ignores all profiles.",
    ),
    _option(
        "-X",
        "overrides",
        metavar="KEY=VALUE",
        multiple=True,
        help="Override one key of the settings file for this run.",
    ),
    _option(
        "-o",
        "--output",
        type=click.Choice(OUTPUTS),
        help="Format of results. The JSON formats apply to errors, too.",
    ),
    _option(
        "--json", "as_json", is_flag=True, to="output", const="json", help="Short for -o json."
    ),
    _option(
        "--ledger-id-format",
        type=click.Choice(ID_FORMATS),
        help="Format of ledger ids in arguments and output.",
    ),
    _option(
        "--entry-format", type=click.Choice(ENTRY_FORMATS), help="Format of payloads in output."
    ),
    _option(
        "--columns",
        metavar="A,B",
        help="Fields to print, in order; custom.KEY is one key of custom metadata.",
    ),
    _option(
        "--sort-by",
        metavar="A[:desc]",
        help="Sort by fields: a,b:desc or a,-b. Rows without a value come last.",
    ),
    _option(
        "--filter",
        "filters",
        metavar="FIELD=VALUE",
        multiple=True,
        help="Show only rows where FIELD matches VALUE; also != < <= > >=, ~ (contains) and !~. "
        "'created>1d' keeps rows of the last day; 'custom!=KEY' keeps rows without "
        "that key.",
    ),
    _option(
        "--watch",
        "watch_s",
        type=Seconds(min=0, min_open=True),
        metavar="[=TIME]",
        per_run=True,
        help="Repeat the command every 2 seconds, or as in --watch=5s.",
    ),
    _option(
        "--until",
        metavar="CONDITION",
        per_run=True,
        help="Watch until CONDITION holds: healthy, done, or FIELD=VALUE for every row. "
        "The status is 6 if --timeout ends first.",
    ),
    _option("--no-headers", is_flag=True, help="Print tables and CSV without their first line."),
    _option("--exact", is_flag=True, help="Print exact numbers in tables."),
    _option("--utc", is_flag=True, help="Print times in UTC instead of local time."),
    _option("--show-secrets", is_flag=True, help="Print ledger passwords."),
    _option(
        "--timeout",
        "timeout_s",
        type=Seconds(min=0),
        metavar="TIME",
        help="Time limit of the command: seconds, 30s, 5m, 1h; 0 means no limit.",
    ),
    _option("-y", "--yes", is_flag=True, help="Answer yes to all questions."),
    _option("--no-input", is_flag=True, help="Never ask; refuse instead."),
    _option("--dry-run", is_flag=True, help="Show the plan and change nothing."),
    _option(
        "--color",
        type=click.Choice(["auto", "always", "never"]),
        help="Use colour; NO_COLOR is respected.",
    ),
    _option("--no-pager", is_flag=True, help="Print long tables without a pager."),
    _option(
        "--progress",
        type=click.Choice(["auto", "lines", "jsonl", "none"]),
        help="Progress on stderr: a bar on a terminal, otherwise a line from time to time.",
    ),
    _option("-q", "--quiet", is_flag=True, help="Print only results and errors."),
    _option(
        "-v", "--verbose", count=True, help="Print more; -vv prints each request, -vvv each entry."
    ),
    _option(
        "--log-level", type=click.Choice(LOG_LEVELS), help="Lowest level of log lines on stderr."
    ),
)
