"""Shared options of commands for ledgers, and for the entries of ledgers, logs and topics."""

from __future__ import annotations

from typing import Any, Final

import click

from bkctl.cli.declarations import option
from bkctl.cli.parameter_types import KEY_VALUE, LEDGER_ID, LEDGER_STATE, SIZE, Word

OPEN_LEDGERS: Final = "open-ledgers"
LOG_LEDGERS: Final = "log-ledgers"
"""The safety checks of ``ledger delete`` that ``--force`` can override."""

LEDGER_CHECKS: Final = Word(
    [OPEN_LEDGERS, LOG_LEDGERS], {"open-ledger": OPEN_LEDGERS, "log-ledger": LOG_LEDGERS}
)

_DIGESTS: Final = ("crc32c", "crc32", "mac", "dummy")


def _quorum(letter: str, name: str, also: tuple[str, ...], default: int, what: str) -> Any:
    """Return an option for a number of bookies; Java's shell uses the lower-case letter."""
    kind = click.IntRange(1)
    also = (letter.lower(), *also)
    return option(letter, name, type=kind, default=default, also=also, help=what)


QUORUMS: Final = (
    _quorum(*("-E", "--ensemble-size", ("--ensemble",), 3), "Bookies that store a fragment."),
    _quorum("-W", "--write-quorum", ("--qw", "-Qw"), 2, "Copies of each entry."),
    _quorum(
        *("-A", "--ack-quorum", ("--qa", "-Qa"), 2),
        "Copies on disk that confirm an add.",
    ),
)

FROM_FILE: Final = option(
    "--from-file", metavar="FILE", help="Read ledger ids from FILE, too; - is stdin."
)
STATE: Final = option("--state", type=LEDGER_STATE, help="Only ledgers in this state.")
PASSWORD_FILE: Final = option(
    "--password-file", metavar="FILE", help="File with the password; - asks for it."
)

COPIES: Final = (
    *QUORUMS,
    option(
        "--digest",
        type=click.Choice(_DIGESTS),
        default="crc32c",
        help="Digest of each entry.",
    ),
    PASSWORD_FILE,
)
"""The replication and protection of entries."""

NEW_LEDGER: Final = (
    *COPIES,
    option("--meta", type=KEY_VALUE, multiple=True, help="Custom metadata; repeatable."),
    option(
        "--ledger-id",
        "wanted_id",
        type=LEDGER_ID,
        help="Use this id, which no ledger has ever had.",
    ),
)
"""The settings of a new ledger."""

FORMS: Final = (
    option("--raw", "form", flag_value="raw", help="Print the payloads without separators."),
    option("--lines", "form", flag_value="lines", help="Print a newline after each entry."),
    option(
        "--length-prefixed",
        "form",
        flag_value="length-prefixed",
        help="4 bytes big-endian before each entry: its length.",
    ),
    option("--hexdump", "form", flag_value="hexdump", help="Print a hexdump."),
    option("--delimiter", help=r"Print TEXT after each entry; \n, \t and \0 work."),
    option(
        "--format",
        "pattern",
        metavar="PATTERN",
        help=r"Print each entry as in '%l/%e %n %s\n': ledger, entry, size, payload.",
    ),
)
"""The output form of payloads."""

FRAMING: Final = (
    option(
        "--lines", "framing", flag_value="lines", help="One entry a line, for text; the default."
    ),
    option(
        "--length-prefixed",
        "framing",
        flag_value="length-prefixed",
        help="4 bytes big-endian before each entry: its length.",
    ),
    option("--whole", "framing", flag_value="whole", help="The entire input is one entry."),
    option("--chunks", "chunk_bytes", type=SIZE, help="Entries of SIZE bytes; for binary input."),
)
"""The separation of the input into entries."""
