"""Ledger ids as texts, in the forms of ``--ledger-id-format``."""

from __future__ import annotations

import re
from typing import Final

LEDGER_ID_MAX: Final = 2**63 - 1
UUID_CHARS: Final = 36


def parse_ledger_id(text: str, form: str = "long") -> int:
    """Return the number of a ledger id in a form: ``long``, ``hex`` or ``uuid``.

    Agrees with BookKeeper 4.18.0, LedgerIdFormatter, for all texts that it accepts.

    Raises:
        ValueError: the text is not an id in this form.
    """
    word = text.strip().lower()
    if re.fullmatch(r"0x[0-9a-f]+", word) or (form == "hex" and re.fullmatch(r"[0-9a-f]+", word)):
        number = int(word, 16)
    elif form == "uuid" and re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", word):
        number = int(word.replace("-", ""), 16)
    elif form == "long" and re.fullmatch(r"[0-9]+", word):
        number = int(word)
    else:
        raise ValueError(f"{text!r} is not a ledger id{_hint(word, form)}")
    if number > LEDGER_ID_MAX:
        raise ValueError(f"{text!r} is too large for a ledger id")
    return number


def _hint(word: str, form: str) -> str:
    if form != "long":
        return f" in the format {form}"
    if re.fullmatch(r"[0-9a-f]+", word):
        return f"; hexadecimal is written 0x{word}, or with --ledger-id-format hex"
    if ":" in word:
        return "; it looks like a bookie's"
    if "-" in word and len(word) == UUID_CHARS:
        return "; add --ledger-id-format uuid"
    return ""


def format_ledger_id(ledger_id: int, form: str = "long") -> str:
    """Return a ledger id in a form, as Java's LedgerIdFormatter."""
    if form == "hex":
        return f"{ledger_id:x}"
    if form == "uuid":
        digits = f"{ledger_id:032x}"
        return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
    return str(ledger_id)
