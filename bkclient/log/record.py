"""The record of a log: its ledgers in order, as values and in stored form.

The stored form is UTF-8 JSON: ``{"v": 1, "id": "…", "ledgers": [[ledger id, ms since 1970], …],
"trimmed": count, "sealed": false, "options": {…}, "batches": [[stream, number], …],
"batch_entries": [count, …]}``. ``trimmed`` is the number of ledgers removed from the front, so a
ledger's index in the log never changes. ``id`` is random for each log. ``batches`` are the last
batches of streams, with their numbers of entries. Records of earlier releases lack some fields.
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

import attrs

from bkclient.errors import IncorrectParameterError, QuorumError
from bkclient.log.errors import LogDamagedError
from bkclient.quorum.distribution import check_quorums
from wire.codes import DigestType
from wire.ids import EntryId, LedgerId

T = TypeVar("T")

FORMAT: Final = 1
"""The format of records and cursors."""

LEDGERS_MAX: Final = 20_000
"""ZooKeeper limits a node to 1 MiB."""

STREAMS_MAX: Final = 100
"""Streams whose last batch a record has: those that wrote last."""

_POSITION: Final = re.compile(r"(\d+):(-?\d+)")


@attrs.frozen(order=True)
class Position:
    """A place in a log: the ledger's index in the log, and an entry id of that ledger.

    Positions of one log have the order of its entries. Positions of two logs cannot be compared.
    Text form: ``index:entry``.
    """

    index: int
    entry_id: int
    ledger_id: LedgerId | None = attrs.field(default=None, eq=False, order=False)

    def __str__(self) -> str:
        return f"{self.index}:{self.entry_id}"

    @classmethod
    def parse(cls, text: str) -> Position:
        """Return the position that ``str`` wrote.

        Raises:
            IncorrectParameterError: the text is not a position.
        """
        found = _POSITION.fullmatch(text.strip())
        if found is None:
            raise IncorrectParameterError(
                f"{text!r} is not a position; give INDEX:ENTRY, for example 0:17"
            )
        return cls(int(found[1]), int(found[2]))


EARLIEST: Final = Position(-1, 0)
"""Before the first entry of the log."""

LATEST: Final = Position(2**62, 0)
"""After the last entry that bookies know to be confirmed when a reader is opened."""


@attrs.frozen(kw_only=True)
class LogOptions:
    """The options for a log's ledgers. 0 means no limit.

    A limit rolls to the next ledger. Appends go on while the next ledger is made, so a ledger has a
    few entries more than ``roll_entries``.
    """

    ensemble_size: int = 3
    write_quorum: int = 2
    ack_quorum: int = 2
    digest_type: DigestType = DigestType.CRC32C
    password: bytes = attrs.field(default=b"", repr=False)
    roll_bytes: int = 1024 * 1024 * 1024
    roll_entries: int = 0
    roll_s: float = 0.0

    def check(self) -> None:
        """Raise ``QuorumError`` or ``IncorrectParameterError`` if an option is invalid."""
        check_quorums(self.ensemble_size, self.write_quorum, self.ack_quorum)
        if min(self.roll_bytes, self.roll_entries) < 0 or not 0 <= self.roll_s < math.inf:
            raise IncorrectParameterError("limits for rolling are 0 (none) or more")


@attrs.frozen
class LogLedger:
    """One ledger of a log, and the time at which it was listed."""

    ledger_id: LedgerId
    created_ms: int


@attrs.frozen
class LastBatch:
    """The last batch of a stream that a log has accepted; ``entries`` is None if unknown."""

    stream: str
    number: int
    entries: int | None = None


@attrs.frozen(kw_only=True)
class LogRecord:
    """The state of a log. ``ledgers[0]`` has the index ``trimmed``."""

    options: LogOptions = LogOptions()
    ledgers: tuple[LogLedger, ...] = ()
    trimmed: int = 0
    sealed: bool = False
    log_id: str = ""
    """Differs for each log of the same name; empty if unknown."""

    batches: tuple[LastBatch, ...] = ()
    """The last batches of streams; the stream that wrote last is at the end."""

    @property
    def next_index(self) -> int:
        """The index that the next ledger will have."""
        return self.trimmed + len(self.ledgers)

    def indexes(self) -> range:
        """Return the indexes of the listed ledgers."""
        return range(self.trimmed, self.next_index)

    def is_of_log_of(self, other: LogRecord) -> bool:
        """Return whether both may be records of one log.

        They are not if the log was deleted and another one created under its name: then their ids
        differ, or without ids, the ledgers at an index.
        """
        if self.log_id and other.log_id:
            return self.log_id == other.log_id
        return all(
            self.lists_at(other.trimmed + offset, ledger.ledger_id)
            for offset, ledger in enumerate(other.ledgers)
        )

    def may_have_id(self, log_id: str) -> bool:
        """Return whether the log may be the one with this id; an empty id may be any."""
        return not log_id or self.log_id in {"", log_id}

    def lists_at(self, index: int, ledger_id: LedgerId | None) -> bool:
        """Return whether the ledger at ``index`` may be ``ledger_id``; None may be any."""
        return ledger_id is None or (index not in self or self.ledger(index).ledger_id == ledger_id)

    def __contains__(self, index: object) -> bool:
        return isinstance(index, int) and self.trimmed <= index < self.next_index

    def ledger(self, index: int) -> LogLedger:
        """Return the ledger with this index, which must not be trimmed."""
        assert index in self, index
        return self.ledgers[index - self.trimmed]

    @property
    def last_ledger_id(self) -> LedgerId | None:
        """The last ledger; None for a log without ledgers."""
        return self.ledgers[-1].ledger_id if self.ledgers else None

    def lists(self, ledger_id: LedgerId) -> bool:
        """Return whether a ledger is one of the log's."""
        return any(one.ledger_id == ledger_id for one in self.ledgers)

    def unlisted(self, ledger_ids: Iterable[LedgerId]) -> list[LedgerId]:
        """Return those of many ledgers that are not the log's."""
        listed = {one.ledger_id for one in self.ledgers}
        return [ledger_id for ledger_id in ledger_ids if ledger_id not in listed]

    @property
    def is_full(self) -> bool:
        """True if no more ledger can be listed."""
        return len(self.ledgers) >= LEDGERS_MAX

    def require_room(self) -> None:
        """Raise ``IncorrectParameterError`` if no more ledger can be listed."""
        if self.is_full:
            raise IncorrectParameterError(
                f"the log has {LEDGERS_MAX} ledgers, and its record cannot list more: trim the "
                "log, and roll it less often"
            )

    def appended(self, ledger_id: LedgerId, created_ms: int) -> LogRecord:
        """Return the record with one more ledger; see ``require_room``."""
        self.require_room()
        return attrs.evolve(self, ledgers=(*self.ledgers, LogLedger(ledger_id, created_ms)))

    def with_batch(self, batch: LastBatch) -> LogRecord:
        """Return the record with a batch as the last one of its stream."""
        others = tuple(one for one in self.batches if one.stream != batch.stream)
        return attrs.evolve(self, batches=(*others, batch)[-STREAMS_MAX:])

    def trimmed_to(self, index: int) -> LogRecord:
        """Return the record with ``index`` as its first ledger."""
        assert self.trimmed <= index < self.next_index
        return attrs.evolve(self, ledgers=self.ledgers[index - self.trimmed :], trimmed=index)

    def encode(self) -> bytes:
        """Return the stored form."""
        value = {
            "v": FORMAT,
            "id": self.log_id,
            "ledgers": [[one.ledger_id, one.created_ms] for one in self.ledgers],
            "trimmed": self.trimmed,
            "sealed": self.sealed,
            "options": _options_to_json(self.options),
        }
        if self.batches:
            # Earlier releases read pairs.
            value["batches"] = [(one.stream, one.number) for one in self.batches]
            value["batch_entries"] = [one.entries for one in self.batches]
        return json.dumps(value, separators=(",", ":")).encode()


def decode_record(name: str, stored: bytes) -> LogRecord:
    """Parse the stored form.

    Raises:
        LogDamagedError: the bytes are not a record that ``encode`` writes.
    """
    return decode_json(f"the record of log {name}", stored, _record_from_json)


def decode_json(what: str, stored: bytes, decode: Callable[[Any], T]) -> T:
    """Return the result of ``decode`` for stored JSON; ``what`` names the value in errors.

    Raises:
        LogDamagedError: the value has a later format, or ``decode`` cannot read it.
    """
    try:
        value = json.loads(stored.decode())
        if value["v"] != FORMAT:
            raise LogDamagedError(f"{what} cannot be read: a later format, {value['v']!r:.20}")
        return decode(value)
    except (
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        OverflowError,
        RecursionError,
        IncorrectParameterError,
        QuorumError,
    ) as error:
        raise LogDamagedError.unreadable(what, error) from error


def _record_from_json(value: Mapping[str, Any]) -> LogRecord:
    return LogRecord(
        options=_options_from_json(value["options"]),
        ledgers=tuple(LogLedger(LedgerId(int(n)), int(ms)) for n, ms in value["ledgers"]),
        trimmed=int(value["trimmed"]),
        sealed=bool(value["sealed"]),
        log_id=str(value.get("id", "")),
        batches=_batches_from_json(value.get("batches", ()), value.get("batch_entries", ())),
    )


def _batches_from_json(pairs: Sequence[Any], entries: Sequence[Any]) -> tuple[LastBatch, ...]:
    counts = entries if len(entries) == len(pairs) else [None] * len(pairs)
    return tuple(
        LastBatch(str(stream), int(number), None if count is None else int(count))
        for (stream, number), count in zip(pairs, counts, strict=True)
    )


def _options_to_json(options: LogOptions) -> dict[str, Any]:
    value = attrs.asdict(options)
    value["digest_type"] = options.digest_type.name
    value["password"] = base64.b64encode(options.password).decode()
    return value


def _options_from_json(value: Mapping[str, Any]) -> LogOptions:
    options = LogOptions(
        ensemble_size=int(value["ensemble_size"]),
        write_quorum=int(value["write_quorum"]),
        ack_quorum=int(value["ack_quorum"]),
        digest_type=DigestType[value["digest_type"]],
        password=base64.b64decode(value["password"], validate=True),
        roll_bytes=int(value["roll_bytes"]),
        roll_entries=int(value["roll_entries"]),
        roll_s=float(value["roll_s"]),
    )
    options.check()
    return options


def position_of(index: int, ledger: LogLedger, entry_id: int) -> Position:
    """Return the position of an entry of the ledger at ``index``."""
    return Position(index, EntryId(entry_id), ledger.ledger_id)
