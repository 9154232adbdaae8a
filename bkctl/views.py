"""What the fields of each kind of printed value are: the one list behind tables, JSON and docs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import attrs

from bkctl.emit import NEVER, WIDE, Field, Kind, View
from bkctl.units import counted, human_bytes, human_duration

if TYPE_CHECKING:
    from bkclient.log import Position
    from bkclient.log.manager import LedgerInfo
    from bkctl.bookie_http_client import HttpAddress
    from wire.ids import BookieId, EntryId, LedgerId
    from wire.ledger_metadata import LedgerMetadata

STATE_WORDS: Final = {"OPEN": "open", "IN_RECOVERY": "in-recovery", "CLOSED": "closed"}


# Values ----------------------------------------------------------------------------------------


@attrs.frozen
class LedgerSummary:
    """One ledger of a list; ``metadata`` is None where only ids were asked for."""

    ledger_id: LedgerId
    metadata: LedgerMetadata | None


@attrs.frozen
class LedgerCount:
    """How many ledgers there are."""

    count: int


@attrs.frozen
class LedgerDetails:
    """One ledger, whole. ``password`` is None unless secrets are to be shown."""

    ledger_id: LedgerId
    metadata: LedgerMetadata
    version: int
    password: bytes | None = None


@attrs.frozen
class ExportedLedger:
    """What one ledger's directory holds."""

    ledger_id: int
    state: str
    last_entry: int
    entries: int
    payload_bytes: int
    digest_type: str
    files: int
    file_bytes: int
    path: str
    unchanged: bool


@attrs.frozen
class ExportReport:
    """What an export did; ``read_back`` is a line of Python for a Spark session."""

    target: str
    ledgers: tuple[ExportedLedger, ...]
    entries: int
    payload_bytes: int
    files: int
    file_bytes: int
    read_back: str


@attrs.frozen
class LedgerCreated:
    """A new ledger that anybody may add to."""

    ledger_id: LedgerId
    ensemble_size: int
    write_quorum: int
    ack_quorum: int
    ensemble: tuple[BookieId, ...]


@attrs.frozen
class EntriesAdded:
    """What one ``ledger add`` added. ``first`` and ``last`` are None when that was nothing."""

    ledger_id: LedgerId
    first: EntryId | None
    last: EntryId | None
    entries: int
    size: int
    seconds: float


@attrs.frozen
class LedgerWritten:
    """A ledger written and closed in one run."""

    ledger_id: LedgerId
    entries: int
    size: int
    seconds: float
    complete: bool = True


@attrs.frozen
class LedgerClosed:
    """A ledger that is closed now; ``how`` says which way."""

    ledger_id: LedgerId
    how: str
    last_entry: EntryId
    length: int


@attrs.frozen
class LedgerFenced:
    """What fencing reached: whether enough bookies know that no writer can add any more."""

    ledger_id: LedgerId
    state: str
    answered: tuple[BookieId, ...]
    missing: Mapping[BookieId, str]
    covered: bool


@attrs.frozen
class LedgerDeleted:
    """A ledger whose metadata is gone."""

    ledger_id: LedgerId
    state: str | None
    last_entry: int | None
    length: int | None


@attrs.frozen
class LogSummary:
    """One log. ``state`` is open, sealed, or what is wrong with it; the rest is None then."""

    name: str
    state: str
    trimmed: int | None
    ledgers: int | None
    entries: int | None
    length: int | None


@attrs.frozen
class LogLedgerRow:
    """One ledger of a log."""

    info: LedgerInfo


@attrs.frozen
class LogEntry:
    """One entry of a log; ``text`` as in ``EntryRecord``."""

    position: Position
    payload: bytes
    text: Any


@attrs.frozen(kw_only=True)
class LogAppended:
    """What one ``log append`` appended. ``first`` and ``last`` are None when that was nothing."""

    name: str
    first: str | None
    last: str | None
    entries: int
    size: int
    seconds: float
    sealed: bool


@attrs.frozen
class LogChanged:
    """What became of a log: created, trimmed, swept or deleted."""

    name: str
    change: str
    first: str | None = None
    """The first position that is kept, after a trim."""
    ledgers: tuple[LedgerId, ...] = ()
    """Ledgers that were deleted."""


@attrs.frozen
class EntryRecord:
    """One entry as machine forms and tables have it."""

    ledger_id: LedgerId
    entry_id: EntryId
    payload: bytes
    last_add_confirmed: int
    text: Any = None


@attrs.frozen
class BookieSummary:
    """One bookie: what metadata says, and what it says itself where it could be asked."""

    bookie_id: BookieId
    state: str
    address: str | None = None
    free: int | None = None
    total: int | None = None
    properties: Mapping[str, str] = attrs.field(factory=dict)
    rack: str | None = None
    """Its network location, where a topology script is configured."""
    unreachable: str = ""
    """Why it did not tell its disks; empty if it did, or was not asked."""
    http: HttpAddress | None = None
    """Where its HTTP server listens, if it has published one."""
    version: str | None = None
    uptime_s: float | None = None

    @property
    def host(self) -> str:
        return (self.address or "").rpartition(":")[0]


@attrs.frozen
class ClusterSummary:
    """The cluster as a whole."""

    uri: str
    instance_id: str | None
    layout: str
    writable: int
    read_only: int
    down: int
    autorecovery: bool
    auditor: BookieId | None
    underreplicated: bool
    ledgers: int | None = None


@attrs.frozen
class HealthCheck:
    """Whether clients may quarantine bookies that fail."""

    enabled: bool
    changed: bool


@attrs.frozen
class ClusterId:
    """The cluster's instance id."""

    instance_id: str


@attrs.frozen
class ClusterCreated:
    """A new cluster."""

    uri: str
    instance_id: str
    layout: str


@attrs.frozen
class LocalBookie:
    """One bookie of a local cluster."""

    bookie_id: str
    state: str
    pid: int | None
    directory: str
    log: str


@attrs.frozen
class LocalZooKeeper:
    """A ZooKeeper server that runs on this machine."""

    address: str
    pid: int
    directory: str
    uri: str
    """For a cluster in it, once `bkctl cluster init` has made one."""


@attrs.frozen
class LocalSummary:
    """A local cluster, for programs."""

    uri: str
    directory: str
    bookies: tuple[LocalBookie, ...]


@attrs.frozen
class Plan:
    """What a dry run would have done."""

    steps: tuple[str, ...]


# Fields ----------------------------------------------------------------------------------------


def _meta(name: str) -> Any:
    """Return a getter of a metadata attribute; None where there is no metadata."""
    return lambda value: None if value.metadata is None else getattr(value.metadata, name)


def _state(value: Any) -> str | None:
    return None if value.metadata is None else STATE_WORDS[value.metadata.state.name]


def _quorums(value: Any) -> str | None:
    m = value.metadata
    return None if m is None else f"{m.ensemble_size}/{m.write_quorum}/{m.ack_quorum}"


def _digest(value: Any) -> str | None:
    if value.metadata is None or value.metadata.digest_type is None:
        return None
    return str(value.metadata.digest_type.name.lower())


def _length(value: Any) -> int | None:
    """A ledger's length is known to the metadata once it is closed."""
    m = value.metadata
    return None if m is None or not m.is_closed else m.length


def _custom(value: Any) -> dict[str, str]:
    if value.metadata is None:
        return {}
    return {
        key: data.decode(errors="backslashreplace") for key, data in value.metadata.custom.items()
    }


def _fragments(value: Any) -> list[dict[str, Any]] | None:
    if value.metadata is None:
        return None
    return [
        {"first_entry": fragment.first_entry_id, "ensemble": list(fragment.ensemble)}
        for fragment in value.metadata.fragments
    ]


def _fragment_lines(value: Any) -> str:
    return "\n".join(
        f"from {fragment.first_entry_id}: {' '.join(fragment.ensemble)}"
        for fragment in value.metadata.fragments
    )


def _pairs(value: Mapping[str, str]) -> str:
    return "\n".join(f"{key}={text}" for key, text in value.items()) or "-"


_ID: Final = Field(
    "ledger_id", "The ledger.", lambda v: v.ledger_id, Kind.LEDGER_ID, header="LEDGER"
)
_SIZE: Final = Field("size", "Bytes of payload.", lambda v: v.size, Kind.BYTES)
_SECONDS: Final = Field("seconds", "Time it took.", lambda v: v.seconds, Kind.SECONDS)
_ENTRIES: Final = Field("entries", "How many entries.", lambda v: v.entries, Kind.COUNT)

_LEDGER: Final = (
    _ID,
    Field("state", "open, in-recovery or closed.", _state, Kind.STATE),
    Field(
        "last_entry",
        "Last entry; none while not closed, -1 for an empty ledger.",
        _meta("last_entry_id"),
        Kind.COUNT,
        rank=1,
    ),
    Field("length", "Bytes of payload; none while not closed.", _length, Kind.BYTES, rank=1),
    Field(
        "quorums", "Ensemble size, write quorum, ack quorum.", _quorums, rank=4, header="E/QW/QA"
    ),
    Field("digest", "How entries are protected.", _digest, rank=5),
    Field("created", "When it was created.", _meta("ctime_ms"), Kind.TIME_MS, rank=3),
    Field(
        "fragments",
        "First entry and ensemble of each fragment.",
        _fragments,
        Kind.NESTED,
        rank=NEVER,
    ),
    Field(
        "ensemble",
        "Bookies of the last fragment.",
        lambda v: v.metadata and list(v.metadata.ensemble),
        Kind.NESTED,
        rank=WIDE,
    ),
    Field(
        "custom",
        "Custom metadata.",
        _custom,
        Kind.NESTED,
        rank=WIDE,
        cell=lambda v: " ".join(f"{key}={text}" for key, text in _custom(v).items()) or "-",
    ),
)


def _details_fields() -> tuple[Field, ...]:
    cells = {"fragments": _fragment_lines, "custom": lambda v: _pairs(_custom(v))}
    fields = [
        attrs.evolve(field, cell=cells.get(field.name, field.cell))
        for field in _LEDGER
        if field.name != "ensemble"
    ]
    return (
        *fields,
        Field(
            "format_version", "Form of the stored metadata.", _meta("format_version"), Kind.COUNT
        ),
        Field("version", "Version of the stored metadata.", lambda v: v.version, Kind.COUNT),
        Field("password", "Ledger password; with --show-secrets.", lambda v: v.password, Kind.DATA),
    )


def _added_sentence(added: EntriesAdded) -> str:
    if added.first is None:
        return f"nothing to add to ledger {added.ledger_id}"
    if added.entries == 1:
        return f"added entry {added.first} to ledger {added.ledger_id} ({human_bytes(added.size)})"
    return (
        f"added {added.entries} entries, {added.first} to {added.last}, to ledger "
        f"{added.ledger_id} ({human_bytes(added.size)} in {human_duration(added.seconds)})"
    )


def _closed_sentence(closed: LedgerClosed) -> str:
    holds = f"{counted(closed.last_entry + 1, 'entry')}, {human_bytes(closed.length)}"
    return f"ledger {closed.ledger_id} {closed.how}: {holds}"


def _exported_sentence(report: ExportReport) -> str:
    kept = sum(ledger.unchanged for ledger in report.ledgers)
    return (
        f"exported {counted(len(report.ledgers), 'ledger')}"
        + (f" ({kept} had not changed)" if kept else "")
        + f": {counted(report.entries, 'entry')}, {human_bytes(report.payload_bytes)}, "
        f"as {counted(report.files, 'Parquet file')} of {human_bytes(report.file_bytes)} "
        f"in {report.target}\n"
        f"in Spark: {report.read_back}"
    )


def _fenced_sentence(fenced: LedgerFenced) -> str:
    missing = "".join(f"; {bookie}: {why}" for bookie, why in fenced.missing.items())
    covers = (
        "no writer can add to it any more" if fenced.covered else "NOT every write set is covered"
    )
    return (
        f"ledger {fenced.ledger_id} fenced by {len(fenced.answered)} bookies: {covers}{missing}; "
        f"`bkctl ledger recover {fenced.ledger_id}` closes it"
    )


def _appended_sentence(appended: LogAppended) -> str:
    seal = "; the log is sealed" if appended.sealed else ""
    if appended.first is None:
        return f"nothing to append to log {appended.name}{seal}"
    if appended.entries == 1:
        return f"appended {appended.first} to log {appended.name}{seal}"
    how = f"{human_bytes(appended.size)} in {human_duration(appended.seconds)}"
    return (
        f"appended {appended.entries} entries, {appended.first} to {appended.last}, to log "
        f"{appended.name} ({how}){seal}"
    )


def _log_changed_sentence(changed: LogChanged) -> str:
    if changed.change == "trimmed":
        return f"log {changed.name} begins with {changed.first} now"
    if changed.change == "swept":
        count = len(changed.ledgers)
        what = "ledger that was" if count == 1 else "ledgers that were"
        return f"deleted {count or 'no'} {what} not part of log {changed.name}"
    more = f" with {counted(len(changed.ledgers), 'ledger')}" if changed.ledgers else ""
    return f"log {changed.name}{more} {changed.change}"


def _log_ledger_state(row: LogLedgerRow) -> str:
    return "lost" if row.info.state is None else STATE_WORDS[row.info.state.name]


def _deleted_sentence(deleted: LedgerDeleted) -> str:
    return f"ledger {deleted.ledger_id} deleted"


VIEWS: Final[Mapping[type, View]] = {
    LocalSummary: View(
        "clusters",
        (
            Field("uri", "The metadata service.", lambda v: v.uri),
            Field("directory", "Where everything lies.", lambda v: v.directory),
            Field(
                "bookies",
                "Its bookies.",
                lambda v: [attrs.asdict(bookie) for bookie in v.bookies],
                Kind.NESTED,
            ),
        ),
        "uri",
    ),
    LocalZooKeeper: View(
        "zookeepers",
        (
            Field("address", "Where it listens.", lambda v: v.address),
            Field("uri", "For `bkctl -u URI cluster init`.", lambda v: v.uri),
            Field("directory", "Where everything lies.", lambda v: v.directory),
            Field("pid", "Its process.", lambda v: v.pid, Kind.COUNT),
        ),
        "address",
    ),
    Plan: View(
        "plans",
        (Field("would", "The steps, in order.", lambda v: list(v.steps), Kind.NESTED),),
        "would",
        sentence=lambda v: "\n".join(f"would {step}" for step in v.steps or ("change nothing",)),
    ),
    LedgerSummary: View(
        "ledgers", _LEDGER, "ledger_id", done=lambda v: bool(v.metadata and v.metadata.is_closed)
    ),
    LedgerCount: View(
        "counts",
        (Field("count", "How many.", lambda v: v.count, Kind.COUNT),),
        "count",
        sentence=lambda v: str(v.count),
    ),
    LedgerDetails: View(
        "ledgers", _details_fields(), "ledger_id", done=lambda v: v.metadata.is_closed
    ),
    LedgerCreated: View(
        "ledgers",
        (
            _ID,
            Field("ensemble_size", "Bookies a fragment.", lambda v: v.ensemble_size, Kind.COUNT),
            Field("write_quorum", "Copies of an entry.", lambda v: v.write_quorum, Kind.COUNT),
            Field("ack_quorum", "Copies before an ack.", lambda v: v.ack_quorum, Kind.COUNT),
            Field("ensemble", "Its bookies.", lambda v: list(v.ensemble), Kind.NESTED),
        ),
        "ledger_id",
        bare=True,
    ),
    EntriesAdded: View(
        "additions",
        (
            _ID,
            Field("first", "First entry added.", lambda v: v.first, Kind.COUNT),
            Field("last", "Last entry added.", lambda v: v.last, Kind.COUNT),
            _ENTRIES,
            _SIZE,
            _SECONDS,
        ),
        "last",
        sentence=_added_sentence,
    ),
    LedgerWritten: View(
        "ledgers",
        (
            _ID,
            _ENTRIES,
            _SIZE,
            _SECONDS,
            Field("complete", "Whether all input is in it.", lambda v: v.complete, Kind.FLAG),
        ),
        "ledger_id",
        bare=True,
    ),
    LedgerClosed: View(
        "ledgers",
        (
            _ID,
            Field("how", "closed, recovered, or closed before.", lambda v: v.how),
            Field("last_entry", "Last entry, -1 for none.", lambda v: v.last_entry, Kind.COUNT),
            Field("length", "Bytes of payload.", lambda v: v.length, Kind.BYTES),
        ),
        "ledger_id",
        sentence=_closed_sentence,
    ),
    LedgerFenced: View(
        "ledgers",
        (
            _ID,
            Field("state", "Its state now.", lambda v: v.state, Kind.STATE),
            Field("answered", "Bookies that fenced it.", lambda v: list(v.answered), Kind.NESTED),
            Field(
                "missing", "Bookies that did not, and why.", lambda v: dict(v.missing), Kind.NESTED
            ),
            Field("covered", "Whether no write set is left.", lambda v: v.covered, Kind.FLAG),
        ),
        "ledger_id",
        sentence=_fenced_sentence,
    ),
    LedgerDeleted: View(
        "ledgers",
        (
            _ID,
            Field("state", "Its last state.", lambda v: v.state, Kind.STATE),
            Field("last_entry", "Its last entry.", lambda v: v.last_entry, Kind.COUNT),
            Field("length", "Bytes of payload.", lambda v: v.length, Kind.BYTES),
        ),
        "ledger_id",
        sentence=_deleted_sentence,
    ),
    LogSummary: View(
        "logs",
        (
            Field("name", "The log.", lambda v: v.name),
            Field("state", "open or sealed.", lambda v: v.state, Kind.STATE),
            Field("ledgers", "Ledgers it is made of.", lambda v: v.ledgers, Kind.COUNT),
            Field("entries", "Entries of its closed ledgers.", lambda v: v.entries, Kind.COUNT),
            Field("length", "Bytes of those.", lambda v: v.length, Kind.BYTES),
            Field(
                "trimmed", "Ledgers dropped off the front.", lambda v: v.trimmed, Kind.COUNT, rank=1
            ),
        ),
        "name",
    ),
    LogLedgerRow: View(
        "ledgers",
        (
            Field("index", "Its place in the log.", lambda v: v.info.index, Kind.COUNT),
            Field("ledger_id", "The ledger.", lambda v: v.info.ledger_id, Kind.LEDGER_ID),
            Field("state", "Its state; lost: it is gone.", _log_ledger_state, Kind.STATE),
            Field("last_entry", "Last entry.", lambda v: v.info.last_entry_id, Kind.COUNT),
            Field("length", "Bytes of payload.", lambda v: v.info.length_bytes, Kind.BYTES),
            Field(
                "created", "When it was listed.", lambda v: v.info.created_ms, Kind.TIME_MS, rank=1
            ),
        ),
        "ledger_id",
    ),
    LogEntry: View(
        "entries",
        (
            Field("position", "Its place in the log.", lambda v: str(v.position)),
            Field("ledger", "Its ledger.", lambda v: v.position.ledger_id, Kind.LEDGER_ID, rank=1),
            Field("entry", "Its entry there.", lambda v: v.position.entry_id, Kind.COUNT, rank=2),
            Field("length", "Bytes of payload.", lambda v: len(v.payload), Kind.BYTES),
            Field(
                "payload_b64",
                "The payload in base64; none with --entry-format.",
                lambda v: None if v.text is not None else v.payload,
                Kind.DATA,
                rank=NEVER,
                optional=True,
            ),
            Field(
                "payload",
                "The payload as --entry-format has it.",
                lambda v: v.text,
                Kind.NESTED,
                rank=1,
                optional=True,
            ),
        ),
        "position",
    ),
    LogAppended: View(
        "additions",
        (
            Field("name", "The log.", lambda v: v.name),
            Field("first", "Position of the first entry.", lambda v: v.first),
            Field("last", "Position of the last.", lambda v: v.last),
            _ENTRIES,
            _SIZE,
            _SECONDS,
            Field("sealed", "Whether the log is complete.", lambda v: v.sealed, Kind.FLAG),
        ),
        "last",
        sentence=_appended_sentence,
    ),
    LogChanged: View(
        "logs",
        (
            Field("name", "The log.", lambda v: v.name),
            Field("change", "What became of it.", lambda v: v.change),
            Field("first", "First position kept, after a trim.", lambda v: v.first),
            Field(
                "ledgers",
                "Ledgers that were deleted.",
                lambda v: [str(ledger_id) for ledger_id in v.ledgers],
                Kind.NESTED,
            ),
        ),
        "name",
        sentence=_log_changed_sentence,
    ),
    EntryRecord: View(
        "entries",
        (
            Field("ledger", "The ledger.", lambda v: v.ledger_id, Kind.LEDGER_ID),
            Field("entry", "The entry.", lambda v: v.entry_id, Kind.COUNT),
            Field("length", "Bytes of payload.", lambda v: len(v.payload), Kind.BYTES),
            Field(
                "last_add_confirmed",
                "What the writer had confirmed when it added this entry.",
                lambda v: v.last_add_confirmed,
                Kind.COUNT,
                rank=3,
                header="LAC",
            ),
            Field(
                "payload_b64",
                "The payload in base64; none with --entry-format.",
                lambda v: None if v.text is not None else v.payload,
                Kind.DATA,
                rank=NEVER,
                optional=True,
            ),
            Field(
                "payload",
                "The payload as --entry-format has it.",
                lambda v: v.text,
                Kind.NESTED,
                rank=1,
                optional=True,
            ),
        ),
        "entry",
    ),
    BookieSummary: View(
        "bookies",
        (
            Field("bookie_id", "The bookie.", lambda v: v.bookie_id, header="BOOKIE"),
            Field("state", "writable, read-only or down.", lambda v: v.state, Kind.STATE),
            Field("address", "Where it listens.", lambda v: v.address, rank=2),
            Field("free", "Free bytes on its disks.", lambda v: v.free, Kind.BYTES, rank=1),
            Field("total", "Bytes of its disks.", lambda v: v.total, Kind.BYTES, rank=1),
            Field(
                "properties",
                "What else it published.",
                lambda v: dict(v.properties),
                Kind.NESTED,
                rank=WIDE,
                cell=lambda v: " ".join(f"{k}={t}" for k, t in v.properties.items()) or "-",
            ),
            Field("rack", "Its network location.", lambda v: v.rack, rank=WIDE),
            Field("version", "What it runs, where it tells.", lambda v: v.version, rank=WIDE),
            Field(
                "uptime_s",
                "How long it has been up, where it tells.",
                lambda v: v.uptime_s,
                Kind.SECONDS,
                rank=WIDE,
                header="UPTIME",
            ),
        ),
        "bookie_id",
        healthy=lambda v: v.state == "writable",
    ),
    ClusterSummary: View(
        "clusters",
        (
            Field("uri", "The metadata service.", lambda v: v.uri),
            Field("instance_id", "The cluster's id.", lambda v: v.instance_id),
            Field("layout", "Layout of the metadata.", lambda v: v.layout),
            Field("writable", "Bookies that take adds.", lambda v: v.writable, Kind.COUNT),
            Field("read_only", "Bookies that only serve reads.", lambda v: v.read_only, Kind.COUNT),
            Field(
                "down", "Bookies with a cookie that are not there.", lambda v: v.down, Kind.COUNT
            ),
            Field(
                "autorecovery", "Whether it is switched on.", lambda v: v.autorecovery, Kind.FLAG
            ),
            Field("auditor", "Who is the auditor.", lambda v: v.auditor),
            Field(
                "underreplicated",
                "Whether any ledger is marked as lacking replicas.",
                lambda v: v.underreplicated,
                Kind.FLAG,
            ),
            Field("ledgers", "How many ledgers.", lambda v: v.ledgers, Kind.COUNT),
        ),
        "instance_id",
        healthy=lambda v: not v.down and not v.read_only and not v.underreplicated,
    ),
    HealthCheck: View(
        "switches",
        (
            Field("enabled", "Whether they may.", lambda v: v.enabled, Kind.FLAG),
            Field("changed", "Whether it was not so before.", lambda v: v.changed, Kind.FLAG),
        ),
        "enabled",
        sentence=lambda v: (
            f"the health check of bookies is {'enabled' if v.enabled else 'disabled'}"
        ),
    ),
    ClusterId: View(
        "clusters",
        (Field("instance_id", "The cluster's id.", lambda v: v.instance_id),),
        "instance_id",
        bare=True,
    ),
    ClusterCreated: View(
        "clusters",
        (
            Field("uri", "The metadata service.", lambda v: v.uri),
            Field("instance_id", "The cluster's id.", lambda v: v.instance_id),
            Field("layout", "Layout of the metadata.", lambda v: v.layout),
        ),
        "instance_id",
    ),
    ExportReport: View(
        "exports",
        (
            Field("target", "Where the files are.", lambda v: v.target),
            Field("entries", "Entries exported.", lambda v: v.entries, Kind.COUNT),
            Field("payload_bytes", "Bytes of payload.", lambda v: v.payload_bytes, Kind.BYTES),
            Field("files", "Parquet files.", lambda v: v.files, Kind.COUNT),
            Field("file_bytes", "Their size.", lambda v: v.file_bytes, Kind.BYTES),
            Field("read_back", "Python that reads it in a Spark session.", lambda v: v.read_back),
            Field(
                "ledgers",
                "Each ledger's share.",
                lambda v: [
                    {**attrs.asdict(ledger), "ledger_id": str(ledger.ledger_id)}
                    for ledger in v.ledgers
                ],
                Kind.NESTED,
            ),
        ),
        "target",
        sentence=_exported_sentence,
    ),
    LocalBookie: View(
        "bookies",
        (
            Field("bookie_id", "The bookie.", lambda v: v.bookie_id, header="BOOKIE"),
            Field("state", "Its state.", lambda v: v.state, Kind.STATE),
            Field("pid", "Its process.", lambda v: v.pid, Kind.COUNT),
            Field("directory", "Its journal and ledgers.", lambda v: v.directory, rank=1),
            Field("log", "Its log.", lambda v: v.log, rank=2),
        ),
        "bookie_id",
    ),
}


def preview(payload: bytes, chars_max: int = 60) -> str:
    """Return the beginning of a payload for a table."""
    text = payload[: chars_max + 1].decode(errors="backslashreplace")
    shown = "".join(char if char.isprintable() else " " for char in text)
    return shown if len(payload) <= chars_max else f"{shown[: chars_max - 3]}..."
