"""The content of docs/commands.md, from the click tree and the table of Java's commands.

``bkctl.manual.generate`` writes it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import click

from bkctl.cli.command import Command
from bkctl.cli.root import cli
from bkctl.commands.tool.java_command_table import (
    BKCTL,
    ELSEWHERE,
    LAUNCHER,
    SHELL,
    SHELL_GLOBALS,
    JavaOption,
    Row,
)

LEFT_OUT: Final = {
    "bkctl ledger show --history": "the metadata services keep the newest version of a ledger's "
    "metadata and no other; `bkctl ledger metadata dump` keeps a version in a file, and a restore "
    "keeps the version that it replaces",
    "-password of regenerate-interleaved-storage-index-file": "every user of the host sees a "
    "command line; the password comes from the metadata, or from --password-file",
    "bkctl export --format jsonl|raw": "`bkctl ledger read ID -o jsonl --out FILE` writes entries "
    "as JSON, and without `-o` their bytes; several ledgers in one process: `bkctl ledger list -o "
    "id | sed 's/.*/ledger read & -o jsonl/' | bkctl shell`",
    "bkctl export --rate": "tasks on several hosts share no count of bytes; "
    "`--spark-conf spark.cores.max=N` limits how many tasks run at a time",
    "bkctl cluster backup --rate": "a backup reads only metadata; zkRequestRateLimit in the "
    "settings limits its requests",
    "a row limit in the shell": "the pager shows a list while it is read; q ends the list",
}
"""Rejected features, and the reasons."""

_INTRO: Final = """\
# Commands

`python -m bkctl.manual.generate` writes this page from the commands: change the commands, not this
page. Each command has a `--help` with examples and exit statuses.

`bkctl compat` runs a command line of Java's tools as it is, and prints the matching line of bkctl:
`bkctl compat readledger -l 3 -fe 0 -le 9`.
"""


def page() -> str:
    """Return the page."""
    parts = [
        _INTRO,
        _section("All commands", ("command", "what it does", "in Java's tools"), _ours()),
        _section(
            "From Java's shell",
            ("`bookkeeper shell …`", "here", "options"),
            map(_row, SHELL),
            "Before the command: "
            + ", ".join(f"`-{name} X` is `{ours} X`" for name, ours in SHELL_GLOBALS.items())
            + ", and `-localbookie [host:port]` names the settings that `localbookie` left in "
            "`LOCALBOOKIES_CONFIG_DIR`. After the command: `-h` and `-help` are `--help`.",
        ),
        _section("From Java's bkctl", ("`bkctl …` of Java", "here", "options"), map(_row, BKCTL)),
        _section(
            "From Java's launcher", ("`bookkeeper …`", "here", "options"), map(_row, LAUNCHER)
        ),
        _section(
            "Commands of Java without a counterpart",
            ("Java", "instead"),
            ((f"`{one.java}`", _text(one.instead)) for one in ELSEWHERE),
        ),
        _section(
            "What was left out",
            ("what", "why"),
            ((f"`{what}`", why) for what, why in LEFT_OUT.items()),
        ),
    ]
    return "\n".join(parts)


def _section(title: str, head: Sequence[str], rows: Iterable[Sequence[str]], text: str = "") -> str:
    lines = [f"## {title}", ""]
    if text:
        lines += [text, ""]
    lines += [_line(head), _line(["---"] * len(head))]
    lines += map(_line, rows)
    return "\n".join(lines) + "\n"


def _line(cells: Sequence[str]) -> str:
    escaped = (cell.replace("|", "\\|") for cell in cells)
    return f"| {' | '.join(escaped)} |"


# Ours --------------------------------------------------------------------------------------------


def commands(
    group: click.Group = cli, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Command]]:
    """Yield every command with the words of its name, in the order of the help."""
    ctx = click.Context(group)
    for name in group.list_commands(ctx):
        command = group.get_command(ctx, name)
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))
        elif isinstance(command, Command) and not command.hidden:
            yield (*path, name), command


def _ours() -> Iterator[tuple[str, str, str]]:
    for path, command in commands():
        ctx = click.Context(command)
        arguments = " ".join(
            parameter.make_metavar(ctx)
            for parameter in command.params
            if isinstance(parameter, click.Argument)
        )
        line = f"`bkctl {' '.join(path)} {arguments}".rstrip() + "`"
        yield line, command.get_short_help_str(100), _text(_twin(command.replaces))


def _twin(replaces: str) -> str:
    """Return the Java command that a command replaces; empty if Java's tools lack it."""
    same = replaces.removeprefix("nothing in Java's tools")
    return f"nothing{same}" if same.startswith(":") else same.lstrip("; ")


# Java's ------------------------------------------------------------------------------------------


def _row(row: Row) -> tuple[str, str, str]:
    options = {option.name: option for option in row.options}
    forms = [_form(row, asked, form, options) for asked, form in row.forms]
    mapped = [_option(option) for option in row.options if option.to or option.why]
    note = [_text(row.note)] if row.note else []
    return f"`{row.java}`", "<br>".join(forms), "<br>".join([*mapped, *note])


def _form(row: Row, asked: str, form: str, options: dict[str, JavaOption]) -> str:
    def filled(match: re.Match[str]) -> str:
        name, may_lack = match[2], match[3]
        option = options.get(name)
        words = _argument(row, name) if option is None else _value(option)
        whole = f"{match[1]}{words}"
        return f"[{whole}]" if may_lack else whole

    line = re.sub(r"(\S*)\{([^}?]+)(\??)\}", filled, form)
    return f"`-{asked}`: `bkctl {line}`" if asked else f"`bkctl {line}`"


def _argument(row: Row, name: str) -> str:
    words = row.arguments.split()
    word = words[int(name) - 1] if len(words) >= int(name) else "DEST"
    return word.strip("[]").replace("[,ID...", " ...")


def _option(option: JavaOption) -> str:
    java = f"`-{option.name}`"
    if option.why:
        return f"{java}: {_text(option.why)}"
    return f"{java} → `{option.to.replace('{}', _value(option))}`"


def _value(option: JavaOption) -> str:
    """Return the placeholder for the value of an option in our command line."""
    if option.fixed:
        return "".join(option.how(option.fixed))
    return option.value.replace(",...", " ...").replace("MS", "SECONDS")


def _text(text: str) -> str:
    """Escape text that looks like a tag."""
    return text.replace("<", "&lt;")
