"""The body of ``bkctl compat``: run a command of Java's tools as a bkctl command."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import click
from click.core import ParameterSource, augment_usage_errors

from bkctl.cli.root import RootGroup
from bkctl.commands.tool.java_command_table import (
    BARE,
    ELSEWHERE,
    ROWS,
    SHELL_GLOBALS,
    JavaOption,
    Row,
)
from bkctl.global_options import as_words, global_options, is_global, options_of
from bkctl.suggest import nearest

LOCAL_DIR: Final = "LOCALBOOKIES_CONFIG_DIR"
LOCAL_DIR_DEFAULT: Final = "/tmp/localbookies-config"  # noqa: S108  # Java's own
"""The directory to which Java's ``localbookie`` writes ``baseconf.conf`` and a file a bookie."""

_LAUNCHERS: Final = (["bookkeeper", "shell"], ["bookkeeper"], ["shell"], ["bkctl"])


def take_globals(ctx: click.Context, args: list[str]) -> list[str]:
    """Store the options of ``bookkeeper shell`` itself for ``run``; return the other words."""
    with augment_usage_errors(ctx):
        ctx.meta["bkctl.compat"], rest = shell_globals(args, _environ(ctx))
    return rest


def run(ctx: click.Context, words: Sequence[str]) -> None:
    """Print the command line that replaces Java's ``words``, and run it.

    Raises:
        click.UsageError: a command or option is unknown, or a word is missing.
    """
    root = ctx.find_root()
    tree: RootGroup = root.command  # type: ignore[assignment] # there is no other root
    with augment_usage_errors(ctx):
        line = [*translate(words, _line_writer(root)), *ctx.meta["bkctl.compat"]]
    line += _typed_options(root, ctx)
    _line_writer(root)(f"bkctl {shlex.join(line)}")
    ctx.exit(tree.run(line, root.obj))


def _line_writer(root: click.Context) -> Callable[[str], None]:
    """Return a function that writes a line to the caller's stderr."""
    stderr = getattr(root.obj, "stderr", None)
    return lambda line: click.echo(line, file=stderr, err=stderr is None)


def _typed_options(*contexts: click.Context) -> list[str]:
    """Return the typed options of bkctl; the command reads options in the environment again."""
    typed = {
        name.lstrip("-")
        for ctx in contexts
        for parameter in ctx.command.params
        if is_global(parameter)
        and ctx.get_parameter_source(parameter.name or "") is ParameterSource.COMMANDLINE
        for name in (*parameter.opts, *_ALSO.get(parameter.name or "", ()))
    }
    options = as_words(options_of(contexts[0]))
    return [word for name, words in options.items() if name in typed for word in words]


_ALSO: Final = {"as_json": ("output",)}
"""Options that set other options, with the names of those options."""


def _environ(ctx: click.Context) -> Mapping[str, str]:
    import os

    environ: Mapping[str, str] = getattr(ctx.find_root().obj, "environ", os.environ)
    return environ


def shell_globals(args: Sequence[str], environ: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """Return bkctl options for the options of ``bookkeeper shell`` itself, and the other words.

    Raises:
        RefusedError: another user can change the settings file of ``-localbookie``.
    """
    ours: list[str] = []
    rest: list[str] = []
    waiting = list(args)
    while waiting:
        word = waiting.pop(0)
        name = word.lstrip("-")
        if word.startswith("-") and not word.startswith("--") and name in SHELL_GLOBALS:
            if not waiting:
                raise click.UsageError(f"{word} needs a value")
            ours += [SHELL_GLOBALS[name], waiting.pop(0)]
        elif word == "-localbookie":
            from bkctl.commands.local.directory import refuse_others_directory

            bookie = waiting.pop(0) if waiting and ":" in waiting[0] else "baseconf"
            directory = environ.get(LOCAL_DIR, LOCAL_DIR_DEFAULT)
            # A settings file names programs that will run.
            refuse_others_directory(Path(directory))
            ours += ["--conf", f"{directory}/{bookie}.conf"]
        else:
            rest.append(word)
    return ours, rest


def translate(java: Sequence[str], report: Callable[[str], object] = lambda _: None) -> list[str]:
    """Return the bkctl command line for a command line of Java, without the program's name.

    ``report`` is called with a line for each option that is not needed.

    Raises:
        click.UsageError: a command or option is unknown, or a word is missing.
    """
    if instead := _elsewhere(java):
        raise click.UsageError(instead)
    words = _without_launcher(java)
    row, rest = _row(words)
    asks = {f"{dash}{name}" for dash in ("-", "--") for name in {"h", "help"} - set(_names(row))}
    if asks.intersection(rest):
        return [*_verb(row), "--help"]
    command = _parsed(row, rest)
    arguments = [row.of_arguments(word) for word in command.arguments]
    line = list(_filled(row, _form(row, command.options), command.options, arguments))
    for option in row.options:
        line += _of_option(option, command.options.get(option.name), report)
    return [*line, *command.ours]


def line_for(java: Sequence[str], counts: Sequence[int] = (1, 2)) -> list[str] | None:
    """Return the bkctl command line for a command line of Java; None if Java has no such command.

    ``counts`` are the allowed numbers of words in the name. Values without Java's options, as in
    ``readledger 7``, fill the gaps of the bkctl line in order. If a value is missing, the line
    shows the help of the command.
    """
    if not any(" ".join(java[:count]) in ROWS for count in counts):
        return None
    try:
        return translate(java)
    except click.UsageError:
        return _by_position(java) or translate([*java[: counts[-1]], "-help"])


def _by_position(java: Sequence[str]) -> list[str] | None:
    """Return the bkctl line for values without Java's options; None if they do not fit."""
    row, values = _row(java)
    form = [word for word in row.forms[-1][1].split() if not word.endswith("?}")]
    gaps = [at for at, word in enumerate(form) if re.fullmatch(r"\{[^}]+\}", word)]
    if not gaps or len(gaps) != len(values) or any(value.startswith("-") for value in values):
        return None
    for at, value in zip(gaps, values, strict=True):
        form[at] = value
    return [*form, *(word for option in row.options for word in option.default.split())]


def names_by_group() -> dict[str, list[str]]:
    """Return the names of Java's commands by group; commands of Java's shell have no group."""
    found: dict[str, list[str]] = {}
    for row in ROWS.values():
        group, _, name = row.java.rpartition(" ")
        found.setdefault(group, []).append(name)
    return found


def _without_launcher(java: Sequence[str]) -> list[str]:
    words = list(java)
    for launcher in _LAUNCHERS:
        if words[: len(launcher)] == launcher and len(words) > len(launcher):
            return words[len(launcher) :]
    return words


def _row(words: Sequence[str]) -> tuple[Row, list[str]]:
    """Return the row of a command and the words after its name; two-word names are tried first."""
    if words[0] == "help" and len(words) > 1:
        row, _ = _row(words[1:])
        return row, ["--help"]
    for count in (2, 1):
        found = ROWS.get(" ".join(words[:count]))
        if found is not None and len(words) >= count:
            return found, list(words[count:])
    raise click.UsageError(_unknown(words))


def _elsewhere(words: Sequence[str]) -> str:
    """Return advice for a command that bkctl does not have; empty for other commands."""
    line = " ".join(words)
    for one in ELSEWHERE:
        if f"{line} ".startswith(f"{one.java} "):
            return f"{one.java}: {one.instead}"
    return ""


def _unknown(words: Sequence[str]) -> str:
    if instead := _elsewhere(["bkctl", *words]):
        return instead
    names = [*ROWS, *(row.java.partition(" ")[2] for row in ROWS.values() if " " in row.java)]
    two, single = (nearest(" ".join(words[:n]), names) for n in (2, 1))
    near = two or single
    meant = f"; did you mean `{near[0]}`?" if near else ""
    return f"Java has no command {words[0]!r}{meant}"


def _verb(row: Row) -> list[str]:
    """Return the command of a row's last form, without gaps and options."""
    words = row.forms[-1][1].split()
    plain = [word for word in words if not word.startswith(("{", "-"))]
    return plain[:2]


def _names(row: Row) -> dict[str, JavaOption]:
    return {name: option for option in row.options for name in option.names}


class _JavaCommand(NamedTuple):
    """The words after the name of a Java command."""

    options: dict[str, list[str]]
    """Values by an option's first name; ``[""]`` for a flag."""
    arguments: list[str]
    ours: list[str]
    """Options that every bkctl command has, and Java's command does not."""


def _parsed(row: Row, words: Sequence[str]) -> _JavaCommand:
    """Separate options, arguments and bkctl options, as commons-cli and JCommander do."""
    names, ours = _names(row), _our_options()
    command = _JavaCommand({}, [], [])
    waiting = list(words)
    while waiting:
        word = waiting.pop(0)
        name, equals, inline = word.lstrip("-").partition("=")
        if not word.startswith("-") and (row.java, word) not in BARE:
            command.arguments.append(word)
        elif option := names.get(name):
            values = _option_values(option, inline if equals else None, waiting)
            command.options[option.name] = values
        elif word.startswith("--") and name in ours:
            count = 1 if ours[name] and not equals else 0
            command.ours.extend([word, *waiting[:count]])
            del waiting[:count]
        else:
            raise click.UsageError(_no_option(row, word, list(names)))
    return command


def _option_values(option: JavaOption, inline: str | None, waiting: list[str]) -> list[str]:
    """Return the value of an option, removed from ``waiting`` if necessary; ``[""]`` for a flag."""
    if not option.value:
        return option.how("")
    if inline is not None:
        return option.how(inline)
    may_lack = option.value.startswith("[")
    if may_lack and (not waiting or waiting[0].startswith("-")):
        return []
    if not waiting:
        raise click.UsageError(f"-{option.name} needs a value")
    return option.how(waiting.pop(0))


def _our_options() -> dict[str, bool]:
    """Return the long names of bkctl's global options, and whether each has a value."""
    found = {}
    for option in global_options(root=False):
        assert isinstance(option, click.Option)
        found.update({name[2:]: not (option.is_flag or option.count)
                      for name in option.opts if name.startswith("--")})  # fmt: skip
    return found


def _no_option(row: Row, word: str, names: Sequence[str]) -> str:
    if word == "-c":
        return f"settings come first: `bkctl -c FILE compat {row.java} ...`"
    near = nearest(word.lstrip("-"), names)
    meant = f"; did you mean -{near[0]}?" if near else ""
    return f"Java's {row.java} has no option {word}{meant}"


def _form(row: Row, found: Mapping[str, Any]) -> str:
    for option, form in row.forms:
        if not option or option in found:
            return form
    asked = ", ".join(f"-{option}" for option, _ in row.forms)
    raise click.UsageError(f"Java's {row.java} needs one of {asked}")


def _filled(
    row: Row, form: str, values: Mapping[str, list[str]], arguments: Sequence[list[str]]
) -> Iterator[str]:
    """Yield the words of a form with its gaps filled.

    Raises:
        click.UsageError: a required gap has no value.
    """
    for word in form.split():
        match = re.fullmatch(r"(.*)\{([^}?]+)(\??)\}", word)
        if match is None:
            yield word
            continue
        prefix, name, may_lack = match.groups()
        if name.isdigit():
            found = arguments[int(name) - 1] if len(arguments) >= int(name) else []
        else:
            found = values.get(name, [])
        if not found and not may_lack:
            what = row.arguments or "an argument" if name.isdigit() else f"-{name}"
            raise click.UsageError(f"Java's {row.java} needs {what}")
        yield from (f"{prefix}{one}" for one in found)


def _of_option(
    option: JavaOption, values: list[str] | None, report: Callable[[str], object]
) -> Iterator[str]:
    """Yield the bkctl words for one option, whether it is present or absent."""
    if values is None:
        yield from option.default.split()
        return
    if option.why:
        report(f"bkctl: -{option.name} is not needed here: {option.why}")
    for value in values:
        yield from (word.replace("{}", value) for word in option.to.split())
