"""Options and arguments for the declarations of commands, and those that many commands share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import click

from bkctl.session.safety_check_names import REFUSES_IF


class _Option(click.Option):
    """An option that may have hidden names."""

    def __init__(self, names: Sequence[str], *, also: Sequence[str], **declared: Any) -> None:
        super().__init__(names, **declared)
        self._also = also

    def add_to_parser(self, parser: Any, ctx: click.Context) -> None:
        """Add the hidden names to the parser."""
        shown = self.opts
        self.opts = [*shown, *self._also]
        try:
            super().add_to_parser(parser, ctx)
        finally:
            self.opts = shown


def option(*names: str, **declared: Any) -> click.Option:
    """Declare an option of a command, as click's decorator would.

    The help shows a default, except of a switch. Types in ``_METAVARS`` name their values.
    ``also`` has further names, hidden in the help.
    """
    if not isinstance(declared.get("default"), (bool, type(None))):
        declared.setdefault("show_default", True)
    declared.setdefault("metavar", _METAVARS.get(getattr(declared.get("type"), "name", "")))
    return _Option(names, **declared) if "also" in declared else click.Option(names, **declared)


_METAVARS: Final = {
    "duration": "TIME",
    "integer range": "N",
    "key=value": "KEY=VALUE",
    "ledger_id": "ID",
    "rate": "SIZE",
    "share": "PERCENT",
    "size": "SIZE",
}


def flag(*names: str, **declared: Any) -> click.Option:
    """Declare an option without a value."""
    return option(*names, is_flag=True, **declared)


def force(*checks: str) -> click.Option:
    """Declare ``--force``, which overrides safety checks."""
    # Some names do not say why the check refuses.
    meanings = [f"{check}: {REFUSES_IF[check]}." for check in checks if check in REFUSES_IF]
    return option(
        "--force",
        type=click.Choice(checks),
        multiple=True,
        help=" ".join(["Override a safety check by its name.", *meanings]),
    )


def java_answers(existing: str) -> tuple[click.Option, click.Option]:
    """Declare Java's options to answer the question whether to delete ``existing``."""
    return (
        flag(
            "-n",
            "-nonInteractive",
            "--noninteractive",
            "non_interactive",
            help=f"Never ask; refuse if {existing} exists, unless -force. Like --no-input.",
        ),
        flag("-f", "-force", "--force", "java_force", help="Like --yes."),
    )


def fail_if(example: str) -> click.Option:
    """Declare ``--fail-if``: a threshold for the result, parsed by ``filters.thresholds``."""
    return option(
        "--fail-if",
        "fail_if",
        multiple=True,
        metavar="CONDITION",
        help=f"Exit with 10 if CONDITION holds, such as '{example}'; repeatable.",
    )


def argument(name: str, **declared: Any) -> click.Argument:
    """Declare an argument of a command, as click's decorator would."""
    return click.Argument([name], **declared)


DIRECTORIES: Final = (
    option(
        "--journal-dir",
        "journal_dirs",
        metavar="DIR",
        multiple=True,
        help="Journal directory; repeatable, in the configured order.",
    ),
    option(
        "--ledger-dir",
        "ledger_dirs",
        metavar="DIR",
        multiple=True,
        help="Ledger directory; repeatable, in the configured order.",
    ),
    option(
        "--index-dir",
        "index_dirs",
        metavar="DIR",
        multiple=True,
        help="Index directory; repeatable.  [default: as --ledger-dir]",
    ),
)
"""The options that name directories instead of the settings."""

BOOKIE_DIRECTORIES: Final = (argument("bookie_dirs", metavar="[DIR...]", nargs=-1), *DIRECTORIES)
"""These options, and DIR: a ledger directory, or a parent of ledger and journal directories."""
