"""What ``/api/v2`` answers, as values: their attributes are the names in JSON and in its schema."""

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
    """What a bookie is doing."""

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
    """How many bookies there are, and who repairs."""

    auditor: str | None
    has_underreplicated: bool
    replication_enabled: bool
    bookies: int
    writable: int
    read_only: int
    down: int


@attrs.frozen(kw_only=True)
class Readiness:
    """Whether the bookie serves."""

    ready: bool
    state: str


@attrs.frozen(kw_only=True)
class ReadOnly:
    """The mode, and whether an operator has set it."""

    read_only: bool
    by_hand: bool


@attrs.frozen(kw_only=True)
class Disk:
    """One ledger or index directory, as the last look at the disks saw it."""

    directory: str
    total_bytes: int
    free_bytes: int
    used: float
    full: bool


@attrs.frozen(kw_only=True)
class JournalMark:
    """Where the replay of a journal would begin."""

    journal_id: int
    offset: int


@attrs.frozen(kw_only=True)
class Compaction:
    """Which compactions an operator has suspended."""

    minor_suspended: bool
    major_suspended: bool


@attrs.frozen(kw_only=True)
class LocationDatabase:
    """A database of DbLedgerStorage with the places of entries."""

    path: str
    compacting: bool
    """Whether it is being rewritten, or waits for that."""


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
    """What was asked for is in progress."""

    accepted: bool = True


@attrs.frozen(kw_only=True)
class SanityCheck:
    """Whether the bookie took some entries and gave them back; if not, why."""

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
    """Who was asked to look for lost bookies."""

    auditor: str


@attrs.frozen(kw_only=True)
class Job:
    """A piece of work behind an answer; times are milliseconds since the epoch.

    ``state``: running, done, failed or cancelled. ``done`` of ``total`` ledgers are through.
    ``said`` is what it does, what came of it, or why it failed.
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
    """Which bookies hold the entries from ``first_entry_id`` on."""

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
    """Some ledgers; ``next_after`` asks for more, and is null at the end."""

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
    """What the cluster's metadata says about repair."""

    enabled: bool
    auditor: str | None
    lost_bookie_recovery_delay_s: int | None


@attrs.frozen(kw_only=True)
class UnderreplicatedLedger:
    """A ledger that waits for repair, and the bookies that lack it.

    ``problem`` says why that cannot be read, and what to do; null where it can.
    """

    ledger_id: int
    missing: tuple[str, ...]
    problem: str | None


@attrs.frozen(kw_only=True)
class RepairFailure:
    """A ledger that this process could not repair, when it last tried, and why."""

    ledger_id: int
    at_ms: int
    why: str


@attrs.frozen(kw_only=True)
class ApiError:
    """Why there is no other answer."""

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
