"""The manual pages of the daemon and of its settings file, from the parsers of both."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import Final

from bkclient.config.client import ClientConfig
from bkclient.config.declaration import DeclaredSetting, OtherKey, declared
from bkctl.manual.man_pages import PageFooter
from bkctl.manual.roff import Page, bold, italic, usage
from bookied.config.bookie import BookieConfig
from bookied.errors import MEANING, OF_AUTORECOVERY
from bookied.process import command_line

CONF: Final = "bk_server.conf"

_SYNTAX: Final = r"""
bookied reads an unmodified settings file of a Java bookie. Each line has one setting: `key=value`,
`key: value` or `key value`. Lines that begin with # or ! are comments. A backslash at the end of a
line continues the line. `\uXXXX` and the usual escapes are read.

A comma separates the values of a list; `\,` is a comma in a value. A key that is repeated adds to a
list. A setting with one value takes the first. `include = other.conf` reads another file at this
place. `${env:NAME}`, `${sys:name}` and `${other.key}` are expanded.

`BK_key` in the environment overrides the file, and `-X key=value` overrides both.

`bookied --conf FILE --check-config` reports problems of a file. `bookied` warns about unknown keys
and names the nearest known key; with `--strict-config` it refuses unknown keys. It always refuses a
setting that it cannot honour safely.
"""


def daemon_pages(edition: PageFooter) -> dict[str, str]:
    """Return the text of each page by the name of its file."""
    return {"bookied.8": _bookied(edition), f"{CONF}.5": _settings(edition)}


def _bookied(edition: PageFooter) -> str:
    page = Page(
        "bookied", 8, about="store ledgers for BookKeeper clients",
        date=edition.date, source=edition.source,
    )  # fmt: skip
    parser, autorecovery = command_line.bookie_parser(), command_line.autorecovery_parser()
    page.title("SYNOPSIS")
    page.synopsis([("bookied", "[OPTIONS]"), ("bookied autorecovery", "[OPTIONS]")])
    page.title("DESCRIPTION")
    page.paragraph(parser.description or "")
    page.paragraph(
        "bookied joins a cluster of Java bookies, serves Java clients, and reads the settings file "
        f"of a Java bookie, `{CONF}(5)`."
    )
    page.paragraph(
        f"`bookied autorecovery`: {autorecovery.description} It takes the same options, except "
        "those for a bookie's port, directories and mode."
    )
    page.title("OPTIONS")
    for action in _actions(parser):
        page.item(usage(_head(action)), _sentence(action.help or ""))
    page.title("SIGNALS")
    for name, does in command_line.SIGNALS.items():
        page.item(bold(name), _sentence(does))
    signals = "; ".join(
        f"{name} {does}" for name, does in command_line.SIGNALS_OF_AUTORECOVERY.items()
    )
    page.paragraph(f"Autorecovery alone: {signals}.")
    page.title("EXIT STATUS")
    page.small_list(((str(int(status)), text) for status, text in MEANING.items()))
    ends = ", ".join(str(int(status)) for status in OF_AUTORECOVERY)
    page.paragraph(
        f"Autorecovery alone ends with one of {ends}. Starting again may help after 2, 3, 4 and 5; "
        "after 1, 6 and 7 it does not."
    )
    page.title("ENVIRONMENT")
    for name, text in _VARIABLES:
        page.item(usage(name), text)
    page.title("SEE ALSO")
    page.paragraph(f"`{CONF}(5)`, `bkctl(1)`, `bkctl-doctor(1)`")
    return page.text


_VARIABLES: Final = (
    (command_line.CONF_VARIABLE, "The settings file, if `--conf` is not given."),
    (command_line.LEVEL_VARIABLE, "The lowest level to log, if `--log-level` is not given."),
    ("BOOKIE_LOG_DIR, BOOKIE_LOG_FILE", "Log to this file, if `--log-file` is not given."),
    ("BK_key", "Sets one key of the settings file, as the containers of Java's bookie do."),
    (
        "NOTIFY_SOCKET, WATCHDOG_USEC",
        "Set by systemd, to which the bookie reports that it is alive.",
    ),
)


def _actions(parser: argparse.ArgumentParser) -> Iterable[argparse.Action]:
    """Return the actions of a parser; argparse has no public access to them."""
    return (one for one in parser._actions if one.help != argparse.SUPPRESS)  # noqa: SLF001


def _head(action: argparse.Action) -> str:
    names = ", ".join(action.option_strings)
    if action.nargs == 0:
        return names
    value = action.metavar or "|".join(action.choices or ()) or action.dest.upper()
    assert isinstance(value, str)
    return f"{names} {value}..." if action.nargs == "+" else f"{names} {value}"


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


# The settings file -------------------------------------------------------------------------------


def _settings(edition: PageFooter) -> str:
    page = Page(
        CONF, 5, about="settings of a bookie, and of clients of BookKeeper",
        date=edition.date, source=edition.source,
    )  # fmt: skip
    page.title("DESCRIPTION")
    page.help(_SYNTAX)
    page.title("SETTINGS OF A BOOKIE")
    _groups(page, declared(BookieConfig))
    page.title("SETTINGS OF CLIENTS")
    page.paragraph("`bkctl` and autorecovery's repairs read these settings.")
    known = {one.spec.key for one in declared(BookieConfig)}
    _groups(page, [one for one in declared(ClientConfig) if one.spec.key not in known])
    page.title("KEYS WITHOUT EFFECT")
    page.paragraph(
        "Java's files have these keys, and here they have no effect. bookied reads a file with one "
        "of these keys, unless the text says refused."
    )
    for other in BookieConfig.other_keys:
        page.item(bold(other.pattern), _of_other(other))
    page.title("SEE ALSO")
    page.paragraph("`bookied(8)`, `bkctl(1)`")
    return page.text


def _groups(page: Page, settings: Iterable[DeclaredSetting]) -> None:
    group = None
    for one in settings:
        if one.spec.group != group:
            group = one.spec.group
            page.subtitle(group)
        _setting(page, one)


def _setting(page: Page, one: DeclaredSetting) -> None:
    spec, default = one.spec, one.default_text
    value = italic(default) if default else "(not set)"
    unit = f" {spec.unit}" if spec.unit and default else ""
    page.item(f"{bold(spec.key)} = {value}{unit}", spec.doc)
    any_of_its_kind = one.kind == "true or false" or one.allowed in {"a whole number", "a number"}
    facts = [
        f"Unit: {spec.unit}." if spec.unit and not default else "",
        f"Allowed: {one.allowed}." if one.allowed and not any_of_its_kind else "",
        "A list." if one.kind == "list" else "",
        f"Older names: {', '.join(spec.aliases)}." if spec.aliases else "",
        "The value is never shown." if spec.secret else "",
        "Read again on SIGHUP." if spec.reloads else "",
    ]
    if any(facts):
        page.under(" ".join(filter(None, facts)))


def _of_other(other: OtherKey) -> str:
    if other.instead:
        return f"{_sentence(other.doc)} The key is `{other.instead}`."
    return _sentence(other.doc)
