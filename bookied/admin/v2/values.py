"""The answers of ``/api/v2`` as values: the attributes are the names in JSON and its schema."""

from __future__ import annotations

import enum
import json
import types
import typing
from collections.abc import Mapping
from typing import Any, Final

import attrs


@attrs.frozen(kw_only=True)
class BookieReport:
    """The state of a bookie."""

    bookie_id: str
    state: str
    running: bool
    read_only: bool
    read_only_by_hand: bool
    shutting_down: bool
    takes_high_priority_writes: bool
    registered: bool
    uptime_s: float
    settings_file: str | None


@attrs.frozen(kw_only=True)
class ClusterSummary:
    """The number of bookies, and the auditor."""

    auditor: str | None
    has_underreplicated: bool
    replication_enabled: bool
    bookies: int
    writable: int
    read_only: int
    down: int


@attrs.frozen(kw_only=True)
class Readiness:
    """The readiness of the bookie."""

    ready: bool
    state: str


@attrs.frozen(kw_only=True)
class ReadOnly:
    """The mode, and whether an operator has set it."""

    read_only: bool
    by_hand: bool


@attrs.frozen(kw_only=True)
class Disk:
    """One ledger or index directory, at the last check of the disks."""

    directory: str
    total_bytes: int
    free_bytes: int
    used: float
    full: bool


@attrs.frozen(kw_only=True)
class JournalMark:
    """The position where the replay of a journal would begin."""

    journal_id: int
    offset: int


@attrs.frozen(kw_only=True)
class Compaction:
    """The compactions that an operator has suspended."""

    minor_suspended: bool
    major_suspended: bool


@attrs.frozen(kw_only=True)
class LocationDatabase:
    """A database of DbLedgerStorage with the locations of entries."""

    path: str
    compacting: bool
    """True if the database is being rewritten, or waits for that."""


@attrs.frozen(kw_only=True)
class Collection:
    """One collector; times are seconds since the epoch, counts since the start."""

    running: bool
    forced: bool
    compacting: str | None
    rounds: int
    failed_rounds: int
    last_began_s: float | None
    last_ended_s: float | None
    next_s: float | None
    last_error: str | None
    minor_compactions: int
    major_compactions: int
    last_minor_s: float | None
    last_major_s: float | None
    ledgers: int
    ledgers_dropped: int
    logs: int
    unreadable_logs: int
    total_bytes: int
    live_bytes: int
    freed_by_removal_bytes: int
    freed_by_compaction_bytes: int


@attrs.frozen(kw_only=True)
class AcceptedTask:
    """The requested task is in progress."""

    accepted: bool = True


@attrs.frozen(kw_only=True)
class SanityCheck:
    """The result of a test that writes and reads entries, with the reason of a failure."""

    passed: bool
    read_only: bool
    error: str | None = None
    write_s: float | None = None
    read_s: float | None = None


@attrs.frozen(kw_only=True)
class AddedDirectories:
    """The directories that got the bookie's cookie; it uses them from its next start on."""

    added: tuple[str, ...]


@attrs.frozen(kw_only=True)
class AuditAsked:
    """The auditor that was asked to look for lost bookies."""

    auditor: str


@attrs.frozen(kw_only=True)
class Job:
    """A background job; times are milliseconds since the epoch.

    ``state``: running, done, failed or cancelled. ``done`` of ``total`` ledgers are complete.
    ``said`` is the present step, the result, or the error.
    """

    job_id: int
    kind: str
    about: str
    state: str
    began_ms: int
    ended_ms: int | None
    done: int
    total: int | None
    said: str


@attrs.frozen(kw_only=True)
class Fragment:
    """The bookies of the entries from ``first_entry_id`` on."""

    first_entry_id: int
    ensemble: tuple[str, ...]


@attrs.frozen(kw_only=True)
class Ledger:
    """A ledger's metadata, without its password."""

    ledger_id: int
    state: str
    ensemble_size: int
    write_quorum: int
    ack_quorum: int
    last_entry_id: int | None
    length: int
    digest_type: str | None
    ctime_ms: int | None
    format_version: int
    fragments: tuple[Fragment, ...]


@attrs.frozen(kw_only=True)
class LedgerPage:
    """Some ledgers; ``next_after`` is the ``after`` of the next page, and null at the end."""

    ledgers: tuple[int, ...]
    next_after: int | None


@attrs.frozen(kw_only=True)
class KnownBookie:
    """A bookie that is registered or has a cookie."""

    bookie_id: str
    state: str
    host: str | None


@attrs.frozen(kw_only=True)
class Autorecovery:
    """The state of repair in the cluster's metadata."""

    enabled: bool
    auditor: str | None
    lost_bookie_recovery_delay_s: int | None


@attrs.frozen(kw_only=True)
class UnderreplicatedLedger:
    """A ledger that waits for repair, and the bookies that lack it.

    ``problem`` is the error of an unreadable mark with a hint; null if the mark is readable.
    """

    ledger_id: int
    missing: tuple[str, ...]
    problem: str | None


@attrs.frozen(kw_only=True)
class RepairFailure:
    """A ledger that this process could not repair, with time and reason of the last attempt."""

    ledger_id: int
    at_ms: int
    why: str


@attrs.frozen(kw_only=True)
class ApiError:
    """An error."""

    code: str
    message: str


@attrs.frozen(kw_only=True)
class ErrorAnswer:
    """An answer without a body."""

    error: ApiError


Settings = dict[str, str]
"""Every setting by its key; secrets are masked."""


def to_json(value: object) -> str:
    """Return values as JSON."""
    return json.dumps(_plain(value), ensure_ascii=False)


def _plain(value: object) -> object:
    kind: Any = type(value)
    if attrs.has(kind):
        return {one.name: _plain(getattr(value, one.name)) for one in attrs.fields(kind)}
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    if isinstance(value, enum.Enum):
        return value.value
    return value


_TYPES: Final[Mapping[object, Mapping[str, str]]] = {
    str: {"type": "string"},
    bool: {"type": "boolean"},
    int: {"type": "integer", "format": "int64"},
    float: {"type": "number"},
    type(None): {"type": "null"},
}


def schema_of(kind: Any, classes: dict[str, Any]) -> dict[str, Any]:
    """Return the JSON schema of a type; those of value classes are added to ``classes``."""
    if kind in _TYPES:
        return dict(_TYPES[kind])
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in {tuple, list}:
        return {"type": "array", "items": schema_of(arguments[0], classes)}
    if origin is dict:
        return {"type": "object", "additionalProperties": schema_of(arguments[1], classes)}
    if origin in {typing.Union, types.UnionType}:
        return {"anyOf": [schema_of(one, classes) for one in arguments]}
    if kind.__name__ not in classes:
        classes[kind.__name__] = _class_schema(kind, classes)
    return {"$ref": f"#/components/schemas/{kind.__name__}"}


def _class_schema(kind: Any, classes: dict[str, Any]) -> dict[str, Any]:
    hints = typing.get_type_hints(kind)
    names = [one.name for one in attrs.fields(kind)]
    return {
        "type": "object",
        "description": (kind.__doc__ or "").strip(),
        "required": names,
        "properties": {name: schema_of(hints[name], classes) for name in names},
    }
