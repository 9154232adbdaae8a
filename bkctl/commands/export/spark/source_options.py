"""The options of ``spark.read.format("bookkeeper")``: parsed and checked on the driver."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

import attrs

from bkctl.commands.export.task.arrow_schema import COLUMNS, LOG_COLUMNS
from bkctl.commands.export.task.ledger_selection import (
    IdRange,
    LedgerChoice,
    parse_ledgers,
    parse_state,
)
from bkctl.commands.topic.arrow_schema import DECODED, TOPIC_COLUMNS
from bkctl.parse_quantities import parse_size, parse_time_ms
from bkctl.suggest import did_you_mean
from wire.codes import LedgerState
from wire.errors import BookKeeperError

if TYPE_CHECKING:
    from bkclient.config.client import ClientConfig

META_PREFIX: Final = "meta."
PARTITION_BYTES: Final = 128 * 1024 * 1024
PARTITION_BYTES_MIN: Final = 1024

_NAME: Final = "name"
_PARSE: Final = "parse"
"""The keys of an option's name and parser in the metadata of a field."""

_SPARKS_OWN: Final = frozenset({"checkpointlocation", "queryname"})
"""The options for Spark itself, which Spark also passes to the source."""

_NO_TABLE: Final = (
    "Spark hands the options of a catalog's table to no Python data source: "
    "use load(), or create temporary view"
)

_ELSEWHERE: Final = {
    "configfile": "conf",
    "endoffset": "endingPosition",
    "endtime": "endingTimestamp",
    "id": "ledgers",
    "metadataserviceuri": "uri",
    "serviceuri": "uri",
    "serviceurl": "uri",
    "since": "startingTimestamp",
    "start": "startingPosition",
    "startoffset": "startingPosition",
    "starttime": "startingTimestamp",
    "subscribe": "topic",
    "subscribepattern": "topicsPattern",
}
"""Names that other sources and settings files use for an option."""


class SourceOptionError(BookKeeperError):
    """An option of the data source is unknown, missing, or has an invalid value."""


@attrs.frozen
class PositionOption:
    """The end of a log, or a position in it: ``earliest``, ``latest`` or (index, entry)."""

    word: str | None = None
    index: int = 0
    entry: int = 0


EARLIEST: Final = PositionOption("earliest")
LATEST: Final = PositionOption("latest")


def _text(value: str) -> str:
    if not value.strip():
        raise ValueError("is empty")
    return value.strip()


def parse_where(value: str, *words: str) -> PositionOption:
    """Return one of the words, by default ``earliest`` or ``latest``, or a position like ``3:17``.

    Raises:
        ValueError: the value has another form.
    """
    word = value.strip().lower()
    words = words or ("earliest", "latest")
    if word in words:
        return PositionOption(word)
    match = re.fullmatch(r"(\d{1,18}):(\d{1,18})", word)
    if match is None:
        raise ValueError(f"is not {', '.join(words)} or a position such as 3:17")
    return PositionOption(None, int(match[1]), int(match[2]))


def _end(value: str) -> PositionOption:
    if value.strip().lower() == "earliest":
        raise ValueError("is before all entries; give latest or a position")
    return parse_where(value, "latest")


def _topic(value: str) -> str:
    from bkclient.topic.names import TopicNameError, parse_topic

    try:
        return str(parse_topic(value.strip()))
    except TopicNameError as error:
        raise ValueError(str(error)) from error


def _pattern(value: str) -> str:
    try:
        re.compile(value)
    except re.error as error:
        raise ValueError(f"is not a regular expression: {error}") from error
    return value


def _decoding(value: str) -> str:
    kinds = ("string", "json", "avro", "protobuf")
    wanted = value.strip().lower()
    if wanted not in kinds:
        raise ValueError(f"is not one of {', '.join(kinds)}{did_you_mean(wanted, kinds)}")
    return wanted


def _cursor(value: str) -> str:
    from bkclient.errors import IncorrectParameterError
    from bkclient.log.cursors import check_cursor_name

    try:
        return check_cursor_name(value.strip())
    except IncorrectParameterError as error:
        raise ValueError(str(error)) from error


def _flag(value: str) -> bool:
    words = {"true": True, "false": False}
    if value.strip().lower() not in words:
        raise ValueError("is not a boolean; give true or false")
    return words[value.strip().lower()]


def _count(value: str) -> int:
    if not re.fullmatch(r"\d{1,18}", value.strip()) or int(value) == 0:
        raise ValueError("is not a whole number above 0")
    return int(value)


def _size(value: str) -> int:
    size = parse_size(value.strip())
    if size < PARTITION_BYTES_MIN:
        raise ValueError(f"is below {PARTITION_BYTES_MIN} bytes")
    return size


def _columns(value: str) -> tuple[str, ...]:
    names = tuple(word.strip() for word in value.split(","))
    if not all(names) or len(set(names)) < len(names):
        raise ValueError("is not a list of columns with commas, each named once")
    return names


def _option(name: str, parse: Callable[[str], Any], *, default: Any = None) -> Any:
    """Declare the option of a field: its documented name, and the parser of its text."""
    return attrs.field(default=default, metadata={_NAME: name, _PARSE: parse})


@attrs.frozen(kw_only=True)
class SourceOptions:
    """The options of a query. ``None`` means that the query does not set the option.

    ``starting`` and ``ending`` are positions of a log or topic; ``ending`` and ``ending_ms`` are
    not included. Times are in ms since 1970. For a topic, the ``index`` of a position is a ledger
    id.
    """

    uri: str | None = _option("uri", _text)
    conf: str | None = _option("conf", _text)
    profile: str | None = _option("profile", _text)
    ledgers: tuple[IdRange, ...] | None = _option("ledgers", parse_ledgers)
    log: str | None = _option("log", _text)
    topic: str | None = _option("topic", _topic)
    topics_pattern: str | None = _option("topicsPattern", _pattern)
    decode: str | None = _option("decode", _decoding)
    state: LedgerState | None = _option("state", parse_state)
    created_after_ms: int | None = _option("createdAfter", parse_time_ms)
    created_before_ms: int | None = _option("createdBefore", parse_time_ms)
    meta: tuple[tuple[str, bytes], ...] = ()
    starting: PositionOption | None = _option("startingPosition", parse_where)
    ending: PositionOption | None = _option("endingPosition", _end)
    starting_ms: int | None = _option("startingTimestamp", parse_time_ms)
    ending_ms: int | None = _option("endingTimestamp", parse_time_ms)
    include_open: bool = _option("includeOpen", _flag, default=True)
    recover: bool = _option("recover", _flag, default=False)
    partition_bytes_max: int = _option("maxPartitionBytes", _size, default=PARTITION_BYTES)
    partitions_min: int | None = _option("minPartitions", _count)
    columns: tuple[str, ...] | None = _option("columns", _columns)
    fail_on_data_loss: bool = _option("failOnDataLoss", _flag, default=True)
    push_filters: bool = _option("pushFilters", _flag, default=False)
    entries_per_trigger_max: int | None = _option("maxEntriesPerTrigger", _count)
    bytes_per_trigger_max: int | None = _option("maxBytesPerTrigger", _size)
    cursor: str | None = _option("cursor", _cursor)
    value_column: str | None = _option("valueColumn", _text)

    @property
    def columns_there(self) -> tuple[str, ...]:
        """The columns that this source has."""
        if self.is_topics:
            return (*TOPIC_COLUMNS, DECODED) if self.decode else TOPIC_COLUMNS
        return LOG_COLUMNS if self.log is not None else COLUMNS

    @property
    def is_topics(self) -> bool:
        """True if the query reads messages of topics."""
        return self.topic is not None or self.topics_pattern is not None

    @property
    def choice(self) -> LedgerChoice:
        """The choice of ledgers by id and by metadata."""
        return LedgerChoice(
            ranges=self.ledgers,
            state=self.state,
            created_after_ms=self.created_after_ms,
            created_before_ms=self.created_before_ms,
            meta=self.meta,
        )

    def where(self) -> tuple[str, ClientConfig]:
        """Return the metadata service and the client's settings.

        Without the options ``uri``, ``conf`` and ``profile``, environment variables name the
        cluster, as for commands.

        Raises:
            SourceOptionError: neither an option nor a variable names a cluster.
            NothingFoundError, PropertiesError, ConfigError: as for the commands.
        """
        from bkctl.errors import UsageError
        from bkctl.global_options import Options, cluster_of_variables
        from bkctl.session.cluster_settings import cluster_settings

        if self.uri or self.conf or self.profile:
            options = Options()
            options.service_uri, options.conf, options.profile = self.uri, self.conf, self.profile
        else:
            options = cluster_of_variables(os.environ)
        try:
            found = cluster_settings(options, os.environ)
        except UsageError as error:
            raise SourceOptionError(f"{error}; give the option uri, conf or profile") from None
        return found.uri, found.config


@attrs.frozen
class Option:
    """One option: its documented name, its field, and the parser of its text."""

    name: str
    field: str
    parse: Callable[[str], Any]


OPTIONS: Final = tuple(
    Option(one.metadata[_NAME], one.name, one.metadata[_PARSE])
    for one in attrs.fields(SourceOptions)
    if one.metadata
)
_BY_LOWER: Final = {option.name.lower(): option for option in OPTIONS}


def parse_options(options: Mapping[str, str]) -> SourceOptions:
    """Return the parsed options of a query; the case of names is ignored.

    Raises:
        SourceOptionError: an option is unknown or invalid; the message names it.
    """
    if "provider" in map(str.lower, options):
        raise SourceOptionError(_NO_TABLE)
    found: dict[str, Any] = {}
    meta: list[tuple[str, bytes]] = []
    for name, value in options.items():
        lower = name.lower()
        if lower.startswith(META_PREFIX) and len(lower) > len(META_PREFIX):
            meta.append((name[len(META_PREFIX) :], value.encode()))
        elif lower in _BY_LOWER:
            option = _BY_LOWER[lower]
            try:
                found[option.field] = option.parse(value)
            except ValueError as error:
                raise SourceOptionError(f"option {option.name}={value!r}: {error}") from error
        elif lower not in _SPARKS_OWN:
            other = _ELSEWHERE.get(lower, name)
            meant = did_you_mean(other, (option.name for option in OPTIONS))
            if lower in {"path", "paths"}:
                meant = ": load, start and save take no path; give the option log, ledgers or topic"
            there = ", ".join(
                sorted((*(option.name for option in OPTIONS), f"{META_PREFIX}KEY"), key=str.lower)
            )
            raise SourceOptionError(f"unknown option {name!r}{meant}; there are {there}")
    parsed = SourceOptions(**found, meta=tuple(meta))
    _check_together(parsed)
    return parsed


def cursor_of(options: Mapping[str, str], asked: SourceOptions) -> str | None:
    """Return the cursor of a stream: the option, or the query's name or checkpoint.

    Spark passes name and checkpoint only if they are also options of ``readStream``. A checkpoint,
    or a name that a cursor cannot have, is replaced by its digest.
    """
    if asked.cursor is not None:
        return asked.cursor
    lower = {name.lower(): value for name, value in options.items()}
    for key in ("queryname", "checkpointlocation"):
        if key in lower:
            try:
                return _cursor(lower[key])
            except ValueError:
                return f"spark-{hashlib.sha256(lower[key].encode()).hexdigest()[:16]}"
    return None


_WHAT: Final = ("topic", "topics_pattern", "log", "ledgers")
"""The fields that name what to read; a query sets at most one."""

_OF_LEDGERS: Final = ("state", "created_after_ms", "created_before_ms", "meta", "recover")
_OF_SINK: Final = ("uri", "conf", "profile", "log", "fail_on_data_loss", "value_column")
_OF_STREAM: Final = ("entries_per_trigger_max", "bytes_per_trigger_max", "cursor")
_OF_POSITIONS: Final = ("starting", "ending", "starting_ms", "ending_ms")
_FIRST_AND_LAST: Final = (
    ("starting", "ending"),
    ("starting_ms", "ending_ms"),
    ("created_after_ms", "created_before_ms"),
)


def _check_together(options: SourceOptions) -> None:
    what = _given(options, _WHAT)
    if len(what) > 1:
        raise SourceOptionError(f"options {what[0]} and {what[1]} exclude each other")
    has_positions = options.is_topics or options.log is not None
    if has_positions:
        for name in _given(options, _OF_LEDGERS):
            raise SourceOptionError(f"options {what[0]} and {name} exclude each other")
    for name in [] if has_positions else _given(options, _OF_POSITIONS):
        raise SourceOptionError(f"option {name} needs the option log, topic or topicsPattern")
    for first, second in (("starting", "starting_ms"), ("ending", "ending_ms")):
        both = _given(options, (first, second))
        if len(both) > 1:
            raise SourceOptionError(f"options {both[0]} and {both[1]} exclude each other")
    _check_order(options)
    for name in [] if options.is_topics else _given(options, ("decode",)):
        raise SourceOptionError(f"option {name} needs the option topic or topicsPattern")
    if options.recover and not options.include_open:
        raise SourceOptionError("option recover has no effect with includeOpen=false")
    if options.is_topics and options.push_filters:
        raise SourceOptionError(f"options {what[0]} and pushFilters exclude each other")
    check_columns(options.columns or (), options)


def _check_order(options: SourceOptions) -> None:
    """Refuse limits in the wrong order: no entry is between them."""
    for fields in _FIRST_AND_LAST:
        first, last = (_limit(getattr(options, field)) for field in fields)
        if first is not None and last is not None and first > last:
            begin, end = _given(options, fields)
            raise SourceOptionError(f"{begin} is after {end}: nothing lies between them")
    after, before = options.created_after_ms, options.created_before_ms
    if after is not None and after == before:
        raise SourceOptionError("createdAfter is createdBefore: nothing lies between them")


def _limit(value: PositionOption | int | None) -> tuple[int, int] | None:
    """Return a limit in a comparable form; None if it is only known when the query runs."""
    if isinstance(value, PositionOption):
        return None if value.word else (value.index, value.entry)
    return None if value is None else (value, 0)


def _given(options: SourceOptions, fields: Iterable[str]) -> list[str]:
    """Return the names of the options among ``fields`` that the query sets."""
    names = {option.field: option.name for option in OPTIONS} | {"meta": f"{META_PREFIX}KEY"}
    default = SourceOptions()
    return [names[field] for field in fields if getattr(options, field) != getattr(default, field)]


def check_use(options: SourceOptions, *, is_stream: bool = False, is_sink: bool = False) -> None:
    """Refuse options that have no effect in this use of the data source.

    Raises:
        SourceOptionError: the message names the first of these options, and its proper use.
    """
    of_source = ["meta", *(one.field for one in OPTIONS if one.field not in _OF_SINK)]
    misplaced = {
        "read or readStream": of_source if is_sink else (),
        "read": ("push_filters",) if is_stream else (),
        "readStream": () if is_stream or is_sink else _OF_STREAM,
        "write or writeStream": () if is_sink else ("value_column",),
    }
    if options.starting == LATEST and not (is_stream or is_sink):
        raise SourceOptionError("startingPosition=latest is for readStream: a query has no rows")
    for place, fields in misplaced.items():
        for name in _given(options, [*fields]):
            raise SourceOptionError(f"option {name} has no effect here: give it to {place}")


def check_columns(names: Iterable[str], options: SourceOptions) -> None:
    """Refuse columns that the source does not have.

    Raises:
        SourceOptionError: the message names the first of these columns, and the existing columns.
    """
    for name in names:
        if name not in options.columns_there:
            there = ", ".join(options.columns_there)
            meant = did_you_mean(name, options.columns_there)
            raise SourceOptionError(f"there is no column {name!r}{meant}; there are {there}")


# Values ----------------------------------------------------------------------------------------
