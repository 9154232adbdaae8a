"""The columns of `ledger verify` and `ledger read --bookie all`."""

from __future__ import annotations

import hashlib
from typing import Any, Final

import attrs

from bkclient.replication.compare_copies import EntryCopy
from bkclient.replication.ledger_verification import BadCopies, Flaw, LedgerVerification
from bkctl.output.units import counted, human_bytes
from bkctl.output.views import BOOKIE, ENTRY, LEDGER, NEVER, WIDE, Column, Kind, declare_view

_RANGES_MAX: Final = 6
"""Ranges of entries that a sentence names, at most."""


def _ranges(bad: BadCopies) -> list[str]:
    return [f"{first}" if first == last else f"{first}-{last}" for first, last in bad.entries]


def _bad(bad: BadCopies) -> dict[str, Any]:
    return {
        "bookie_id": bad.bookie_id,
        "flaw": bad.flaw.value,
        "count": bad.count,
        "entries": _ranges(bad),
        "why": bad.why,
    }


def _bad_sentence(bad: BadCopies) -> str:
    ranges = _ranges(bad)
    more = len(ranges) - _RANGES_MAX
    named = ", ".join(ranges[:_RANGES_MAX]) + (f" and {more} more ranges" if more > 0 else "")
    word = "entry" if bad.count == 1 else "entries"
    why = bad.why.removeprefix(f"bookie {bad.bookie_id}: ")
    why = f" ({why})" if bad.flaw is Flaw.UNREADABLE else ""
    return f"  {bad.bookie_id}  {bad.flaw.value} {bad.count}: {word} {named}{why}"


def _verified(v: LedgerVerification) -> str:
    bad = sum(one.count for one in v.bad if one.flaw is not Flaw.DIFFERING)
    copies = f"{v.copies - bad} of " if bad else ""
    last = v.metadata.last_entry_id
    entries = counted(v.entries, "entry")
    if last is not None and v.entries <= last:
        entries = f"{v.entries} of {counted(last + 1, 'entry')}"
    read = f"{entries}, {copies}{counted(v.copies, 'copy')}, {human_bytes(v.size)} of copies"
    state = "" if v.metadata.is_closed else f" ({v.metadata.state.word})"
    lines = [f"ledger {v.ledger_id}{state}: {read}: {'all' if v.sound else 'not all'} sound"]
    lines += map(_bad_sentence, v.bad)
    if v.entries_lost:
        lines.append(f"  no bookie returned a copy of {counted(v.entries_lost, 'entry')}")
    if not v.end_known:
        lines.append("  where it ends is not known: too few bookies of its last fragment answer")
    if not v.digests_checked:
        lines.append("  digests were not checked: the metadata has no password")
    return "\n".join(lines)


declare_view(
    LedgerVerification,
    "ledgers",
    LEDGER,
    Column("sound", "Whether every copy exists and is intact."),
    Column("entries", "Entries checked."),
    Column("copies", "Number of copies that the write quorum asks for."),
    Column("size", "Bytes of payload of all copies read.", kind=Kind.BYTES),
    Column(
        "bad",
        "Copies that are missing, damaged, differing or unreadable, by bookie.",
        lambda v: [_bad(one) for one in v.bad],
        Kind.NESTED,
        cell=lambda v: "\n".join(_bad_sentence(one).strip() for one in v.bad) or "-",
    ),
    Column("end_known", "Whether the last entry is known."),
    Column("digests_checked", "Whether digests could be checked."),
    Column("entries_lost", "Entries without a copy that can be read."),
    sentence=_verified,
)


_SHA256_CHARS: Final = 16
"""Characters of the SHA-256 in a table; JSON has all of it."""


def word_of(copy: EntryCopy) -> str:
    """Return ``intact``, or the flaw of a copy."""
    return "intact" if copy.flaw is None else copy.flaw.value


def _digest(copy: EntryCopy) -> str | None:
    if copy.payload is None:
        return None
    return "ok" if copy.is_verified else "wrong" if copy.flaw is Flaw.DAMAGED else "not checked"


def _sha256(copy: EntryCopy) -> str | None:
    return None if copy.payload is None else hashlib.sha256(copy.payload).hexdigest()


declare_view(
    EntryCopy,
    "copies",
    attrs.evolve(LEDGER, rank=WIDE),
    ENTRY,
    BOOKIE,
    Column("copy", "intact, missing, damaged, differing or unreadable.", word_of, Kind.STATE),
    Column(
        "size",
        "Bytes of payload.",
        lambda v: None if v.payload is None else len(v.payload),
        Kind.BYTES,
        rank=2,
    ),
    Column("digest", "ok, wrong or not checked.", _digest, rank=3),
    Column(
        "last_add_confirmed",
        "The last add confirmed in this copy; a recovery writes another number.",
        "lac",
        rank=4,
        header="LAC",
    ),
    Column(
        "sha256",
        "SHA-256 of the payload.",
        _sha256,
        rank=1,
        cell=lambda v: (_sha256(v) or "-")[:_SHA256_CHARS],
    ),
    Column(
        "why",
        "The reason, if the copy is not intact.",
        lambda v: v.why or None,
        rank=5,
        if_any=True,
    ),
    Column("payload_b64", "The payload in base64.", "payload", rank=NEVER),
    id="bookie_id",
)
