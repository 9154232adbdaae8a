"""The columns of ledgers and entries in tables and machine forms."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from typing import Any, Final

import attrs

from bkclient.ledger.handover_state import HANDOVER_KEY, WRITER_KEY, confirmed_by_handover
from bkclient.quorum.fragments import fewest_racks
from bkctl.commands.ledger.entry_output import is_text
from bkctl.output.units import counted, human_bytes
from bkctl.output.views import (
    ENTRY,
    LEDGER,
    NEVER,
    OLDER_IDS,
    OLDER_SIZE,
    PAYLOAD,
    PAYLOAD_SIZE,
    WIDE,
    Column,
    Kind,
    field,
    shown,
)
from wire.ids import NO_ENTRY, BookieId, EntryId, LedgerId
from wire.ledger_metadata import LedgerMetadata


def _digest(value: Any) -> str | None:
    if value.metadata is None or value.metadata.digest_type is None:
        return None
    return str(value.metadata.digest_type.name.lower())


def _length(value: Any) -> int | None:
    """Return a ledger's length; None while not closed: only the close writes it to the metadata."""
    m = value.metadata
    return None if m is None or not m.is_closed else m.length


def _stored(value: Any) -> int | None:
    length = _length(value)
    return None if length is None else length * value.metadata.write_quorum


def _last_entry(value: Any) -> str:
    """Return the last entry of a closed ledger, or of the writer that released the ledger."""
    metadata = value.metadata
    if metadata is None:
        return "-"
    if metadata.is_closed:
        return str(metadata.last_entry_id)
    found = _confirmed(value)
    return "not closed" if found in {None, NO_ENTRY} else str(found)


def _confirmed(value: Any) -> int | None:

    metadata = value.metadata
    if metadata is None or metadata.is_closed or HANDOVER_KEY not in metadata.custom:
        return None
    return confirmed_by_handover(value.ledger_id, metadata)


def _password(value: Any) -> str:
    if value.password is not None:
        return f"{base64.b64encode(value.password).decode()} (base64)"
    return "set; --show-secrets prints it" if value.metadata.password else "-"


def _custom(value: Any) -> dict[str, str]:
    if value.metadata is None:
        return {}
    return {
        key: data.decode(errors="backslashreplace") for key, data in value.metadata.custom.items()
    }


def _pairs(value: Any) -> list[str]:
    """Return custom metadata as KEY=TEXT, without the keys that only the next writer needs."""
    own = {WRITER_KEY, HANDOVER_KEY}
    return [f"{key}={text}" for key, text in _custom(value).items() if key not in own]


def _fragments(value: Any) -> list[dict[str, Any]] | None:
    if value.metadata is None:
        return None
    return [
        {"first_entry": fragment.first_entry_id, "ensemble": list(fragment.ensemble)}
        for fragment in value.metadata.fragments
    ]


LEDGER_COLUMNS: Final = (
    LEDGER,
    Column("state", "open, in-recovery or closed.", "metadata.state.word", Kind.STATE),
    Column(
        "last_entry",
        "Last entry; none while not closed, -1 for an empty ledger.",
        "metadata.last_entry_id",
        Kind.COUNT,
        rank=1,
        cell=_last_entry,
        cell_of_none=True,
    ),
    Column(
        "length",
        "Bytes of payload; none while not closed: the close writes the length to the metadata.",
        _length,
        Kind.BYTES,
        rank=1,
    ),
    Column(
        "stored",
        "Bytes of payload of all copies; none while not closed.",
        _stored,
        Kind.BYTES,
        rank=WIDE,
    ),
    Column(
        "ensemble_size",
        "Bookies of a fragment.",
        "metadata.ensemble_size",
        Kind.COUNT,
        rank=4,
        header="E",
    ),
    Column(
        "write_quorum",
        "Copies of an entry.",
        "metadata.write_quorum",
        Kind.COUNT,
        rank=4,
        header="QW",
    ),
    Column(
        "ack_quorum",
        "Copies before an ack.",
        "metadata.ack_quorum",
        Kind.COUNT,
        rank=4,
        header="QA",
    ),
    Column("digest", "Digest type of the entries.", _digest, rank=5),
    Column("created", "Time of the ledger's creation.", "metadata.ctime_ms", rank=3),
    Column("fragments", "First entry and ensemble of each fragment.", _fragments, rank=NEVER),
    Column(
        "ensemble",
        "Bookies of the last fragment.",
        lambda v: v.metadata and list(v.metadata.ensemble),
        Kind.NESTED,
        rank=WIDE,
    ),
    Column(
        "custom", "Custom metadata.", _custom, rank=WIDE, cell=lambda v: " ".join(_pairs(v)) or "-"
    ),
)


_CONFIRMED: Final = Column(
    "confirmed_entry",
    "Last entry that can be read, if the ledger is open and the writer has released it.",
    _confirmed,
    Kind.COUNT,
    optional=True,
)


def _racks(value: Any) -> dict[str, list[BookieId]] | None:
    if value.metadata is None or not value.racks:
        return None
    found: dict[str, list[BookieId]] = {}
    for bookie_id in sorted(value.metadata.all_bookies()):
        found.setdefault(value.racks.get(bookie_id, "unknown"), []).append(bookie_id)
    return dict(sorted(found.items()))


def _racks_min(value: Any) -> int | None:
    known = value.metadata is not None and value.racks
    return fewest_racks(value.metadata, value.racks) if known else None


@shown(
    "ledgers",
    *LEDGER_COLUMNS,
    attrs.evolve(_CONFIRMED, rank=NEVER),
    Column(
        "racks",
        "The ledger's bookies in each rack; unknown without a topology script.",
        _racks,
        rank=WIDE,
        cell=lambda v: ", ".join(f"{rack}: {len(its)}" for rack, its in (_racks(v) or {}).items()),
        optional=True,
    ),
    Column(
        "racks_min",
        "Racks with copies of the entry that is in the fewest racks.",
        _racks_min,
        rank=WIDE,
        optional=True,
    ),
    id="ledger_id",
    done=lambda v: bool(v.metadata and v.metadata.is_closed),
)
class LedgerSummary:
    """One ledger of a list; ``metadata`` is None if only ids were requested.

    ``racks`` are the racks of all bookies; None or empty if racks are unknown or not shown.
    """

    ledger_id: LedgerId
    metadata: LedgerMetadata | None
    racks: Mapping[BookieId, str] | None = None


@shown("counts", sentence=lambda v: str(v.count))
class LedgerCount:
    """The number of ledgers."""

    count: int = field("Number of ledgers.")

    @classmethod
    def of(cls, found: Iterable[Any]) -> LedgerCount:
        """Return the number of elements."""
        return cls(sum(1 for _ in found))


def _total_sentence(total: LedgerTotal) -> str:
    closed = "the closed one has" if total.closed == 1 else f"the {total.closed} closed ones have"
    length, stored = human_bytes(total.length), human_bytes(total.stored)
    return f"{counted(total.count, 'ledger')}; {closed} {length}, {stored} with all copies"


@shown("totals", sentence=_total_sentence)
class LedgerTotal:
    """The number of ledgers, and the bytes of the closed ones."""

    count: int = field("Number of ledgers.")
    closed: int = field("Number of closed ledgers. Only the bookies know the bytes of the others.")
    length: int = field("Bytes of payload of the closed ledgers.", kind=Kind.BYTES)
    stored: int = field("Bytes of payload of all copies of the closed ledgers.", kind=Kind.BYTES)

    @classmethod
    def of(cls, found: Iterable[LedgerSummary]) -> LedgerTotal:
        """Return the sums over the ledgers."""
        count = closed = length = stored = 0
        for one in found:
            count += 1
            if (own := _length(one)) is not None:
                closed, length, stored = closed + 1, length + own, stored + (_stored(one) or 0)
        return cls(count, closed, length, stored)


def _topic(value: Any) -> str | None:
    if value.metadata is None or "application" not in value.metadata.custom:
        return None
    # Imported late: only Pulsar's ledgers need the module.
    from bkclient.topic.names import topic_of_ledger

    found = topic_of_ledger(value.metadata.custom)
    return None if found is None else str(found)


def _fragment_lines(value: Any) -> str:
    return "\n".join(
        f"from {fragment.first_entry_id}: {' '.join(fragment.ensemble)}"
        for fragment in value.metadata.fragments
    )


def _details_fields() -> tuple[Column, ...]:
    cells = {"fragments": _fragment_lines, "custom": lambda v: "\n".join(_pairs(v)) or "-"}
    fields = [
        attrs.evolve(
            field,
            cell=cells.get(field.name, field.cell),
            # The long name: a record has space for it.
            header=field.header if field is LEDGER else "",
        )
        for field in LEDGER_COLUMNS
        if field.name != "ensemble"
    ]
    return (
        *fields,
        _CONFIRMED,
        Column("topic", "The Pulsar topic that the ledger belongs to.", _topic, optional=True),
        Column(
            "format_version",
            "Format of the stored metadata.",
            "metadata.format_version",
            Kind.COUNT,
        ),
        Column("version", "Version of the stored metadata."),
        Column(
            "password", "Ledger password; with --show-secrets.", cell=_password, cell_of_none=True
        ),
    )


@shown("ledgers", *_details_fields(), id="ledger_id", done=lambda v: v.metadata.is_closed)
class LedgerDetails:
    """All details of one ledger. ``password`` is None unless secrets are shown."""

    ledger_id: LedgerId
    metadata: LedgerMetadata
    version: int
    password: bytes | None = None


@shown(
    "entries",
    LEDGER,
    ENTRY,
    PAYLOAD_SIZE,
    Column(
        "last_add_confirmed",
        "The last add confirmed when the writer added this entry.",
        rank=3,
        header="LAC",
    ),
    *PAYLOAD,
    *OLDER_IDS,
    OLDER_SIZE,
    id="entry_id",
)
class EntryRecord:
    """One entry as a record of tables and machine forms."""

    ledger_id: LedgerId
    entry_id: EntryId
    payload: bytes
    last_add_confirmed: int
    text: Any = None


def preview(payload: bytes, chars_max: int | None = 60) -> str:
    """Return the beginning of a payload for a table: text unchanged, other bytes as 0x..."""
    begin = payload if chars_max is None else payload[: 4 * chars_max]
    text = payload.decode() if is_text(payload) else f"0x{begin.hex()}"
    shown = "".join(char if char.isprintable() else " " for char in text)
    return shown if chars_max is None or len(shown) <= chars_max else f"{shown[: chars_max - 3]}..."
