"""Records of journals and entry logs as ``bkctl disk`` prints them, and their damage."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import attrs

from bkctl.commands.ledger.columns import preview
from bkctl.commands.ledger.read import payload_value
from bkctl.errors import ProblemsError
from bkctl.output.views import ENTRY, LEDGER, NEVER, OLDER_IDS, WIDE, Column, Kind, shown
from bookied.errors import CorruptError
from bookied.offline.bookie import JournalEntry, OfflineBookie, RecordKind, StoredEntry
from bookied.offline.entries_without_password import find_digest, payload_of
from bookied.offline.entry_logs import EntryLogSummary, summarize
from wire.codes import ENTRY_HEADER_BYTES, DigestType
from wire.digest import header

if TYPE_CHECKING:
    from bkctl.session.session import Session
    from bookied.offline.ledgers import PlacedEntry

T = TypeVar("T")
R = TypeVar("R", bound="DiskRecord")

TICK_RECORDS: Final = 512
_WIDTH: Final = 120
_OTHER_COLUMNS: Final = 60
_PREVIEW_MIN: Final = 20
UNKNOWN: Final = "unknown"
"""The digest of an entry that matches no CRC: its ledger uses MAC or no digest, or it is
damaged.
"""
WRONG: Final = "wrong"
_DIGEST_WORDS: Final = {"CRC32C": "crc32c", "CRC32": "crc32"}


@attrs.frozen
class DiskRecord:
    """One record of a file. ``size`` is the size of its body, without the length field.

    ``payload`` is None if the command does not print payloads.
    """

    path: Path
    offset: int
    kind: str
    ledger_id: int
    entry_id: int | None
    size: int
    last_add_confirmed: int | None = None
    ledger_length: int | None = None
    digest: str | None = None
    payload: bytes | None = attrs.field(default=None, repr=False)
    text: Any = None
    detail: str | None = None

    @property
    def file(self) -> str:
        return self.path.name


_OFFSET: Final = Column("offset", "Offset of the record's length field in the file.")


_CONTENT: Final = (
    Column("size", "Size of the record without its length field."),
    Column("last_add_confirmed", "LAC that the writer stored in the entry.", rank=3, header="LAC"),
    Column("ledger_length", "Payload size of the ledger up to this entry.", rank=WIDE),
    Column(
        "digest",
        "The digest type that fits the bytes: crc32c, crc32, or unknown; wrong: other "
        "entries of the ledger in this file have a digest, and this entry fails it.",
        rank=4,
        optional=True,
    ),
    Column(
        "payload_b64",
        "The payload; where the digest type is unknown, the digest precedes the payload.",
        "payload",
        rank=NEVER,
        optional=True,
    ),
    Column(
        "payload",
        "The payload in the form of --entry-format.",
        "text",
        Kind.NESTED,
        rank=NEVER,
        optional=True,
    ),
    Column(
        "detail",
        "Further details; a table shows the beginning of the payload, or with -o wide the "
        "whole payload.",
        rank=1,
        header="CONTENT",
        optional=True,
    ),
)


_RECORD_FILE: Final = (
    Column("path", "The file.", lambda v: str(v.path), rank=WIDE),
    Column("file", "Name of the file.", rank=6),
)


@shown(
    "records",
    *_RECORD_FILE,
    _OFFSET,
    Column("kind", "entry, ledger key, fence, explicit LAC."),
    LEDGER,
    ENTRY,
    *_CONTENT,
    *OLDER_IDS,
    id="offset",
)
class JournalRow(DiskRecord):
    """A record of a journal."""


@shown("records", *_RECORD_FILE, _OFFSET, LEDGER, ENTRY, *_CONTENT, *OLDER_IDS, id="offset")
class LogRow(DiskRecord):
    """A record of an entry log."""


@shown(
    "entries",
    LEDGER,
    ENTRY,
    Column("source", "entry log, or journal.", "kind", rank=2),
    Column("path", "The file.", lambda v: str(v.path), rank=WIDE),
    Column("file", "Name of the file."),
    _OFFSET,
    *_CONTENT,
    *OLDER_IDS,
    id="entry_id",
)
class PlacedRow(DiskRecord):
    """An entry of a ledger, in a journal or an entry log."""


class DamagedRecords:
    """The damage found while records are printed.

    ``finish`` reports it at the end of the command.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self.errors: list[CorruptError] = []

    def __call__(self, error: CorruptError) -> None:
        self.errors.append(error)
        self._session.warn(str(error))

    def note(self, error: CorruptError) -> None:
        """Remember damage that the command's output shows."""
        self.errors.append(error)

    def passing(self, values: Iterable[T]) -> Iterator[T]:
        """Yield values until damage, and report the damage."""
        try:
            yield from values
        except CorruptError as error:
            self(error)

    def finish(self) -> None:
        """End the command with status 10 if records were damaged.

        Raises:
            ProblemsError: records were damaged.
        """
        if self.errors:
            self._session.finish()
            first = self.errors[0]
            more = f" (and {len(self.errors) - 1} more)" if len(self.errors) > 1 else ""
            raise ProblemsError(
                f"damage was found{more}: {first}",
                next_step="`bkctl disk check --deep` checks all data",
            )


class LedgerDigests:
    """The digest type of each ledger, found from the bytes of its entries."""

    def __init__(
        self, read: Callable[[], Iterable[tuple[int, bytes]]], damage: DamagedRecords
    ) -> None:
        """``read`` yields ledger ids and packets. It is called after an entry matches no digest."""
        self._read, self._damage = read, damage
        self._found: dict[int, DigestType] | None = None

    def checked(self, row: R) -> R:
        """Return ``row``, as damaged if other entries of its ledger match a digest."""
        if row.digest != UNKNOWN:
            return row
        if self._found is None:
            self._found = dict(self._digests())
        kind = self._found.get(row.ledger_id)
        if kind is None:
            return row
        what = f"fails its {kind.name} digest, which other entries of the ledger pass"
        where = f"ledger {row.ledger_id} entry {row.entry_id}"
        self._damage.note(CorruptError(row.path, row.offset, f"{where} {what}"))
        return attrs.evolve(row, digest=WRONG, detail=what)

    def _digests(self) -> Iterator[tuple[int, DigestType]]:
        # Damage also ends the reading that prints the records, and is reported there.
        with contextlib.suppress(CorruptError):
            for ledger_id, packet in self._read():
                kind = find_digest(packet)
                if kind is not None:
                    yield ledger_id, kind


def log_summaries(
    session: Session, bookie: OfflineBookie, paths: Sequence[Path], damage: DamagedRecords
) -> Iterator[EntryLogSummary]:
    """Yield the summary of each entry log, with progress; skip logs that cannot be read."""
    total, done = sum(map(bookie.files.size, paths)), 0
    with session.progress("reading entry logs", total=total) as progress:
        for path in paths:
            try:
                summary = summarize(bookie.files, path)
            except CorruptError as error:
                damage(error)
            else:
                if summary.damage is not None:
                    damage(summary.damage)
                yield summary
            done += bookie.files.size(path)
            progress.update(done)


def packet_fields(
    session: Session, packet: bytes, *, payload: bool, digest: bool = False
) -> dict[str, Any]:
    """Return the fields in an entry's bytes: LAC, length, digest type and ``payload``."""
    if len(packet) < ENTRY_HEADER_BYTES:
        return {"detail": f"{len(packet)} bytes: too short for an entry"}
    head = header(packet)
    found: dict[str, Any] = {"last_add_confirmed": head.lac, "ledger_length": head.length}
    if not payload and not digest:
        return found
    kind = find_digest(packet)
    if kind is None:
        rest = packet[ENTRY_HEADER_BYTES:]
        found["digest"] = UNKNOWN
        if payload:
            found.update(payload=rest, detail=f"{len(rest)} bytes of digest and payload")
        return found
    found["digest"] = _DIGEST_WORDS[kind.name]
    if payload:
        data = payload_of(packet, kind)
        found.update(payload=data, **_shown(session, data))
    return found


def _shown(session: Session, data: bytes) -> dict[str, Any]:
    """Return the fields for a payload; a table shortens the payload to the width of the output."""
    if session.options.output == "wide":
        return {"detail": preview(data, None)}
    if session.options.output in {None, "table"}:
        width = shutil.get_terminal_size().columns if session.host.stdout.isatty() else _WIDTH
        return {"detail": preview(data, max(_PREVIEW_MIN, width - _OTHER_COLUMNS))}
    return {"text": payload_value(data, session.options.entry_format)}


def journal_row(session: Session, entry: JournalEntry, *, payload: bool) -> JournalRow:
    """Return the printed form of a journal's record."""
    more: dict[str, Any] = {}
    size = len(entry.content)
    if entry.kind is RecordKind.ENTRY:
        more = packet_fields(session, entry.content, payload=payload)
    elif entry.kind is RecordKind.LEDGER_KEY:
        more = {"detail": key_words(entry.content, secrets=session.options.show_secrets)}
    elif entry.kind is RecordKind.EXPLICIT_LAC:
        lac = lac_of(entry.content)
        more = {"detail": f"explicit LAC {lac}", "last_add_confirmed": lac}
    return JournalRow(
        entry.path, entry.offset, entry.kind.value, entry.ledger_id, entry.entry_id, size, **more
    )


def log_row(session: Session, entry: StoredEntry, *, payload: bool) -> LogRow:
    """Return the printed form of an entry log's record."""
    more = packet_fields(session, entry.packet, payload=payload)
    return LogRow(
        entry.path, entry.offset, "entry", entry.ledger_id, entry.entry_id, len(entry.packet),
        **more,
    )  # fmt: skip


def placed_row(session: Session, entry: PlacedEntry, *, payload: bool) -> PlacedRow:
    """Return the printed form of a ledger's entry."""
    kind = "journal" if entry.is_journal else "entry log"
    if entry.packet is None:
        return PlacedRow(
            entry.path, entry.offset, kind, entry.ledger_id, entry.entry_id, 0,
            detail=f"cannot be read: {entry.damage.expected if entry.damage else 'damaged'}",
        )  # fmt: skip
    more = packet_fields(session, entry.packet, payload=payload, digest=True)
    return PlacedRow(
        entry.path, entry.offset, kind, entry.ledger_id, entry.entry_id, len(entry.packet), **more
    )


def key_words(key: bytes | None, *, secrets: bool) -> str:
    """Return a description of a master key. The key itself is a secret: its holder can add."""
    if not key:
        return "no key"
    if not key.strip(b"\0"):
        return f"key of {len(key)} zeros"
    return f"key {key.hex()}" if secrets else f"key of {len(key)} bytes"


def lac_of(packet: bytes | None) -> int | None:
    """Return the LAC of a LAC packet: ledger id, LAC, digest."""
    return None if packet is None else int.from_bytes(packet[8:16], "big", signed=True)


def counted(rows: Iterable[T], progress: Any, position: Any) -> Iterator[T]:
    """Yield rows, and update a progress display with their ``position``."""
    for count, row in enumerate(rows, 1):
        yield row
        if progress is not None and count % TICK_RECORDS == 0:
            progress.update(position(row), count)


def may_draw(session: Session) -> bool:
    """Return whether a progress bar would not appear between the rows."""
    return not session.host.stdout.isatty()
