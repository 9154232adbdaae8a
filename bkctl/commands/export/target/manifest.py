"""The record of an export's directory: one record per run, and the tree of all runs.

``_bkctl/run-000007.json`` below the target is written when run 7 is committed. Spark ignores names
that begin with ``_``. A record lists the files that its run added and removed. Every ``FULL_EVERY``
runs the record lists all files instead, so that few records are read. ``commit`` cleans up after
killed runs.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar

import attrs

from bkctl.commands.export.task.ledger_selection import LedgerChoice
from bkctl.commands.export.task.parquet_file import WrittenFile
from bkctl.commands.export.task.partitions import LedgerExtent
from wire.codes import LedgerState
from wire.errors import BookKeeperError
from wire.ids import EntryId, LedgerId

T = TypeVar("T")

FORMAT: Final = 2
FOLDER: Final = "_bkctl"
PARQUET: Final = "parquet"
DELTA: Final = "delta"
TABLE_FORMATS: Final = (PARQUET, DELTA)
"""The formats that readers open: the directory of Parquet files, or the Delta table over it."""
FULL_EVERY: Final = 32
_RUN_NAME: Final = re.compile(r"run-(\d{6,})\.json")


class ManifestError(BookKeeperError):
    """A record of an export cannot be read; nothing was changed."""

    hint = "export to another directory, or bring the file back from a copy"


@attrs.frozen(kw_only=True)
class RunRecord:
    """The record of one run.

    ``layout`` is the arrangement of files, ``table_format`` one of ``TABLE_FORMATS``; an
    ``is_full`` record lists all files. ``choice`` is the choice of later runs without their own;
    None in records of older releases.
    """

    cluster: str
    layout: str
    run: int
    ended_ms: int
    is_full: bool
    ledgers: tuple[LedgerExtent, ...]
    files: tuple[WrittenFile, ...]
    removed: tuple[str, ...] = ()
    table_format: str = PARQUET
    choice: LedgerChoice | None = None

    @property
    def path(self) -> str:
        """The path of the record, below the target."""
        return f"{FOLDER}/run-{self.run:06d}.json"

    def encode(self) -> bytes:
        """Return the record in its stored form."""
        return json.dumps(self.to_json(), separators=(",", ":")).encode()

    def to_json(self) -> dict[str, Any]:
        """Return the record as a JSON value."""
        return {
            "format": FORMAT,
            "cluster": self.cluster,
            "layout": self.layout,
            "table_format": self.table_format,
            "run": self.run,
            "ended_ms": self.ended_ms,
            "is_full": self.is_full,
            "ledgers": [_ledger_to_json(extent) for extent in self.ledgers],
            "files": [file.to_json() for file in self.files],
            "removed": list(self.removed),
            "choice": None if self.choice is None else _choice_to_json(self.choice),
        }


def decode_run(path: str, stored: bytes) -> RunRecord:
    """Return the record from the stored form of ``RunRecord.encode``.

    Raises:
        ManifestError: the stored form is invalid; the message names ``path``.
    """
    try:
        return run_from_json(json.loads(stored))
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise ManifestError(f"{path} cannot be read: {error!r}") from error


def path_within(value: object) -> str:
    """Return a path below the target: other users with write access may edit records.

    Raises:
        ValueError: the path is outside the target.
    """
    path = str(value)
    if not path or path.startswith("/") or ".." in path.split("/"):
        raise ValueError(f"path {path!r} leads out of the target")
    return path


def run_from_json(value: dict[str, Any]) -> RunRecord:
    """Return a record from its JSON value, and empty the value's lists of ledgers and files.

    Raises:
        ValueError, TypeError, KeyError: the value is not a record.
    """
    if value["format"] != FORMAT:
        raise ValueError(f"format {value['format']}, not {FORMAT}")
    return RunRecord(
        cluster=str(value["cluster"]),
        layout=str(value["layout"]),
        run=int(value["run"]),
        ended_ms=int(value["ended_ms"]),
        is_full=bool(value["is_full"]),
        ledgers=_taken(value["ledgers"], _ledger_from_json),
        files=_taken(value["files"], _file_from_json),
        removed=tuple(map(path_within, value["removed"])),
        table_format=str(value.get("table_format", PARQUET)),
        choice=_choice_from_json(value.get("choice")),
    )


def _taken(values: list[Any], convert: Callable[[Any], T]) -> tuple[T, ...]:
    """Convert the values of a list, and drop each: both forms of a million take much memory."""
    values.reverse()
    found: list[T] = []
    while values:
        found.append(convert(values.pop()))
    return tuple(found)


def _file_from_json(value: list[Any]) -> WrittenFile:
    file = WrittenFile.from_json(value)
    path_within(file.path)
    return file


def _choice_to_json(choice: LedgerChoice) -> dict[str, Any]:
    value = attrs.asdict(choice)
    value["state"] = None if choice.state is None else choice.state.name
    value["meta"] = [[key, stored.decode("latin-1")] for key, stored in choice.meta]
    return value


def _choice_from_json(value: dict[str, Any] | None) -> LedgerChoice | None:
    if value is None:
        return None
    ranges, state = value["ranges"], value["state"]
    return LedgerChoice(
        ranges=None if ranges is None else tuple((int(a), int(b)) for a, b in ranges),
        log=value["log"],
        topic=value["topic"],
        state=None if state is None else LedgerState[state],
        created_after_ms=value["created_after_ms"],
        created_before_ms=value["created_before_ms"],
        meta=tuple((str(key), stored.encode("latin-1")) for key, stored in value["meta"]),
    )


def _ledger_to_json(extent: LedgerExtent) -> list[Any]:
    return [
        extent.ledger_id,
        extent.last_entry_id,
        extent.length,
        extent.state,
        extent.digest_type,
        extent.ctime_ms,
        extent.log,
    ]


def _ledger_from_json(value: list[Any]) -> LedgerExtent:
    ledger_id, last, length, state, digest_type, ctime_ms, log = value
    return LedgerExtent(
        LedgerId(int(ledger_id)),
        EntryId(int(last)),
        int(length),
        sys.intern(str(state)),
        sys.intern(str(digest_type)),
        None if ctime_ms is None else int(ctime_ms),
        None if log is None else sys.intern(str(log)),
    )


@attrs.define(kw_only=True)
class TargetTree:
    """The sum of all committed runs. ``run`` is the last; 0 in a directory without exports."""

    cluster: str | None = None
    layout: str | None = None
    table_format: str | None = None
    run: int = 0
    choice: LedgerChoice | None = None
    ledgers: dict[int, LedgerExtent] = attrs.field(factory=dict)
    files: dict[str, WrittenFile] = attrs.field(factory=dict)

    def apply(self, record: RunRecord) -> None:
        """Add the next run."""
        if record.is_full:
            self.ledgers, self.files = {}, {}
        self.cluster, self.layout, self.run = record.cluster, record.layout, record.run
        self.table_format, self.choice = record.table_format, record.choice
        for path in record.removed:
            self.files.pop(path, None)
        self.files.update((file.path, file) for file in record.files)
        self.ledgers.update((extent.ledger_id, extent) for extent in record.ledgers)

    def files_of(self, ledger_ids: Iterable[int]) -> dict[int, list[WrittenFile]]:
        """Return the files with entries of each of these ledgers."""
        wanted = set(ledger_ids) if self.files else set()
        found: dict[int, list[WrittenFile]] = {}
        for file in self.files.values() if wanted else ():
            for ledger_id in {r.ledger_id for r in file.ranges}.intersection(wanted):
                found.setdefault(ledger_id, []).append(file)
        return found

    def next_record(
        self,
        *,
        cluster: str,
        layout: str,
        now_ms: int,
        ledgers: Iterable[LedgerExtent],
        files: Iterable[WrittenFile],
        removed: Iterable[str],
        table_format: str = PARQUET,
        choice: LedgerChoice | None = None,
    ) -> RunRecord:
        """Return the record of the run after this tree's last."""
        record = RunRecord(
            cluster=cluster,
            layout=layout,
            run=self.run + 1,
            ended_ms=now_ms,
            is_full=False,
            ledgers=tuple(ledgers),
            files=tuple(files),
            removed=tuple(removed),
            table_format=table_format,
            choice=choice,
        )
        if record.run % FULL_EVERY:
            return record
        after = TargetTree(ledgers=dict(self.ledgers), files=dict(self.files))
        after.apply(record)
        return attrs.evolve(
            record,
            is_full=True,
            ledgers=tuple(after.ledgers.values()),
            files=tuple(after.files.values()),
        )


def run_number(name: str) -> int | None:
    """Return the run number of a record's file name in ``FOLDER``; None for other files."""
    match = _RUN_NAME.fullmatch(name)
    return int(match[1]) if match else None
