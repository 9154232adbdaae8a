"""The stored values of marks, locks, delays and checks, and which of them can be read."""

from __future__ import annotations

from bkclient.errors import IncorrectParameterError
from bkclient.metadata import zk_paths
from bkclient.metadata.api import DamagedMark
from wire.errors import FormatError, MetadataFormatError
from wire.ids import LedgerId
from wire.records.repair_marks import (
    UnderreplicatedMark,
    decode_check_time,
    decode_lock,
    decode_mark,
)


def stored_mark(ledger_id: LedgerId, value: bytes) -> UnderreplicatedMark:
    """Return a ledger's mark.

    Raises:
        MetadataFormatError: it cannot be read.
    """
    try:
        return decode_mark(value)
    except FormatError as error:
        raise MetadataFormatError(f"the mark of ledger {ledger_id}: {error}") from error


def readable_mark(
    ledger_id: LedgerId, value: bytes, damaged: DamagedMark | None
) -> UnderreplicatedMark | None:
    """Return a ledger's mark, or call ``damaged`` if it cannot be read.

    Raises:
        MetadataFormatError: it cannot be read, and ``damaged`` is None.
    """
    try:
        return stored_mark(ledger_id, value)
    except MetadataFormatError as error:
        if damaged is None:
            raise
        damaged(ledger_id, error)
        return None


def name_in_lock(value: bytes) -> str:
    """Return the bookie id in a lock; empty where its value has none."""
    try:
        return decode_lock(value).bookie_id
    except FormatError:
        return ""


def check_path(check: str) -> str:
    """Return where the end of a check is noted; raise ``IncorrectParameterError``."""
    try:
        return zk_paths.CHECK_TIMES[check]
    except KeyError as error:
        raise IncorrectParameterError(
            f"no check {check!r}; there are {', '.join(zk_paths.CHECK_TIMES)}"
        ) from error


def stored_check_time(check: str, value: bytes) -> int | None:
    """Return when a check ended last, in ms.

    Raises:
        FormatError: the value cannot be read.
    """
    try:
        return decode_check_time(value)
    except FormatError as error:
        raise FormatError(f"{check_path(check)}: {error}") from error


def encode_delay(delay_s: int) -> bytes:
    """Return the stored form of the delay before a lost bookie's ledgers are repaired."""
    if delay_s < 0:
        raise IncorrectParameterError(f"the delay must be 0 s or more, not {delay_s}")
    return str(delay_s).encode()


def parse_delay(value: bytes) -> int:
    """Return the stored delay in seconds; raise ``MetadataFormatError`` for anything else."""
    try:
        return int(value.decode("ascii"))
    except ValueError as error:
        raise MetadataFormatError(f"lostBookieRecoveryDelay is {value[:40]!r}") from error
